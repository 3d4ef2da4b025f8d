"""Durable writes that only one of several writers wins, beside writes without that promise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

from bench.figures import Benchmark, Figure
from bench.measure import Sample, call, one_by_one, times_run
from bench.samples import manifest
from bench.surroundings import Bucket, Surroundings
from laminar_dagster.core.document import FORMAT_VERSION, encode
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import AttemptRecord, Prepared
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock, mint_checkpoint_id

_MILLISECOND: Final = 1e-3
_RENAMED: Final = "write, fsync, rename"
_PUT: Final = "put_object, no condition"
_SYNCS: Final = "also syncs the name: every folder up to the base"
_LOOPBACK: Final = "server on this machine: no network"


def create_local(surroundings: Surroundings) -> Iterator[Figure]:
    """Conditional create on disk."""
    own, peer = _create(surroundings, surroundings.local_store(), _raw_write(surroundings.folder()))
    yield _create_figure("create-local", own, _RENAMED, peer, _SYNCS)


def create_s3(surroundings: Surroundings) -> Iterator[Figure]:
    """Conditional create on S3."""
    bucket = surroundings.bucket()
    own, peer = _create(surroundings, bucket.store, _raw_put(bucket))
    yield _create_figure("create-s3", own, _PUT, peer, _LOOPBACK)


def manifest_write_local(surroundings: Surroundings) -> Iterator[Figure]:
    """The commit point, on disk."""
    own, peer = _write_manifests(
        surroundings, surroundings.local_store(), _raw_write(surroundings.folder())
    )
    yield _manifest_figure("manifest-write-local", own, _MILLISECOND, _RENAMED, peer, _SYNCS)


def manifest_write_s3(surroundings: Surroundings) -> Iterator[Figure]:
    """The commit point, on S3."""
    bucket = surroundings.bucket()
    own, peer = _write_manifests(surroundings, bucket.store, _raw_put(bucket))
    yield _manifest_figure("manifest-write-s3", own, 100 * _MILLISECOND, _PUT, peer, _LOOPBACK)


BENCHMARKS: Final = (
    Benchmark("create-local", "conditional create on disk", create_local),
    Benchmark("create-s3", "conditional create on S3", create_s3),
    Benchmark("manifest-write-local", "write a manifest to disk", manifest_write_local),
    Benchmark("manifest-write-s3", "write a manifest to S3", manifest_write_s3),
)


def _create(
    surroundings: Surroundings, store: ObjectStore, raw: Callable[[], object]
) -> tuple[Sample, Sample]:
    numbers, data = count(), _data()
    own, peer = one_by_one(
        surroundings.effort,
        call(lambda: store.create(f"bench/{next(numbers):06}.json", data)),
        call(raw),
    )
    return own, peer


def _write_manifests(
    surroundings: Surroundings, store: ObjectStore, raw: Callable[[], object]
) -> tuple[Sample, Sample]:
    checkpoints = CheckpointStore(store)
    winners = iter(
        [_begin(checkpoints, number) for number in range(times_run(surroundings.effort))]
    )
    own, peer = one_by_one(
        surroundings.effort,
        call(lambda: checkpoints.write_manifest(next(winners))),
        call(raw),
    )
    return own, peer


def _begin(checkpoints: CheckpointStore, number: int) -> Prepared:
    """An attempt that has begun, as in an epoch: its folder is there."""
    checkpoint = mint_checkpoint_id()
    record = AttemptRecord(
        version=FORMAT_VERSION,
        epoch=EpochNumber(number + 1),
        checkpoint_id=checkpoint,
        started_at=SystemClock().now(),
    )
    checkpoints.begin_attempt(record)
    document = manifest(sources=10, operators=20, checkpoint=checkpoint, epoch=number + 1)
    return Prepared.of(document)


def _data() -> bytes:
    return encode(manifest(sources=10, operators=20))


def _raw_write(folder: Path) -> Callable[[], None]:
    numbers, data = count(), _data()

    def write() -> None:
        path = folder / f"{next(numbers):06}"
        with open(path.with_suffix(".tmp"), "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path.with_suffix(".tmp"), path)

    return write


def _raw_put(bucket: Bucket) -> Callable[[], object]:
    numbers, data = count(), _data()
    return lambda: bucket.client.put_object(
        Bucket=bucket.name, Key=f"raw/{next(numbers):06}.json", Body=data
    )


def _create_figure(name: str, own: Sample, peer: str, peer_sample: Sample, note: str) -> Figure:
    what = f"create an object of {len(_data()):,} bytes if there is none"
    return Figure(name, what, own, peer=peer, peer_sample=peer_sample, note=note)


def _manifest_figure(
    name: str, own: Sample, limit: float, peer: str, peer_sample: Sample, note: str
) -> Figure:
    what = "commit a manifest: 10 sources, 20 operators; encode, check, create"
    return Figure(name, what, own, limit=limit, peer=peer, peer_sample=peer_sample, note=note)

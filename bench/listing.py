"""Finding the checkpoints of a store, beside reading them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bench.figures import Benchmark, Figure, in_words
from bench.measure import call, one_by_one
from bench.samples import manifest
from bench.surroundings import Surroundings
from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import Prepared
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import mint_checkpoint_id

_CHECKPOINTS: Final = 100
_MILLISECOND: Final = 1e-3


def list_local(surroundings: Surroundings) -> Iterator[Figure]:
    """On disk."""
    store = surroundings.local_store()
    ids = _fill(store)
    read = store.read
    yield from _figures(
        surroundings,
        "list-local",
        store,
        lambda: [read(layout.manifest_key(each)) for each in ids],
        f"{_CHECKPOINTS} reads in a row, nothing parsed",
    )


def list_s3(surroundings: Surroundings) -> Iterator[Figure]:
    """On S3."""
    bucket = surroundings.bucket()
    ids = _fill(bucket.store)
    get = bucket.client.get_object

    def requests_of(act: Callable[[], object]) -> int:
        before = bucket.store.requests
        act()
        return bucket.store.requests - before

    yield from _figures(
        surroundings,
        "list-s3",
        bucket.store,
        lambda: [
            get(Bucket=bucket.name, Key=layout.manifest_key(each))["Body"].read() for each in ids
        ],
        f"{_CHECKPOINTS} GETs in a row, nothing parsed",
        requests_of=requests_of,
        limit=500 * _MILLISECOND,
    )


BENCHMARKS: Final = (
    Benchmark("list-local", f"list {_CHECKPOINTS} checkpoints on disk", list_local),
    Benchmark("list-s3", f"list {_CHECKPOINTS} checkpoints on S3", list_s3),
)


def _figures(
    surroundings: Surroundings,
    name: str,
    store: ObjectStore,
    one_after_the_other: Callable[[], object],
    peer: str,
    *,
    requests_of: Callable[[Callable[[], object]], int] | None = None,
    limit: float | None = None,
) -> Iterator[Figure]:
    checkpoints = CheckpointStore(store)

    def ids() -> object:
        return list(checkpoints.checkpoint_ids())

    def whole() -> object:
        return list(checkpoints.candidates())

    names, manifests, slow = one_by_one(
        surroundings.effort, call(ids), call(whole), call(one_after_the_other)
    )
    for suffix, what, act, sample in (
        ("ids", "their ids", ids, names),
        ("manifests", "with every manifest read and checked", whole, manifests),
    ):
        yield Figure(
            f"{name}/{suffix}",
            f"list {_CHECKPOINTS} checkpoints: {what}",
            sample,
            limit=limit,
            peer=peer,
            peer_sample=slow,
            note=in_words(requests_of(act)) if requests_of else "",
        )


def _fill(store: ObjectStore) -> list[CheckpointId]:
    checkpoints = CheckpointStore(store)
    ids = [mint_checkpoint_id() for _ in range(_CHECKPOINTS)]
    for epoch, each in enumerate(ids, 1):
        document = manifest(sources=10, operators=20, checkpoint=each, epoch=epoch)
        checkpoints.write_manifest(Prepared.of(document))
    return ids

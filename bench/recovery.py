"""Recovery: how fast state is read, checked and restored, beside reading and hashing it raw.

The state is real Arrow files of a window operator, in a checkpoint with plan, winner, manifest and
pointer around it. What is damaged is not part of it: to run an epoch again takes what the epoch
took.
"""

from __future__ import annotations

import gc
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Final

from bench.figures import Benchmark, Figure
from bench.measure import Sample, call, code, in_batches, one_by_one
from bench.surroundings import Surroundings
from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION, checksum
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
    PipelineName,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SourceOffsetEntry,
)
from laminar_dagster.core.manifest_builder import ManifestBuilder
from laminar_dagster.core.offsets import CustomIdentity, KafkaPosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import AttemptRecord, Prepared
from laminar_dagster.core.recovery import RecoveryPhase, RecoveryPlan
from laminar_dagster.runtime.assembly import NoEngine
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock, mint_checkpoint_id
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.recovery.deadline import WORKERS
from laminar_dagster.runtime.recovery.discovery import discover
from laminar_dagster.runtime.recovery.documents import offsets_of
from laminar_dagster.runtime.recovery.progress import ProgressReporter
from laminar_dagster.testing.memory_pipeline import MemoryLog, MemorySource

_NAME: Final = "recovery"
_MEGABYTE: Final = 1e6
_SIZES: Final = {"10mb": 10, "100mb": 100}
_LARGEST: Final = {"1gb": 1000}
# Seconds, as the feature documents have them.
_LIMITS: Final = {
    ("local", "10mb"): 1.0,
    ("local", "100mb"): 5.0,
    ("s3", "100mb"): 10.0,
    ("s3", "1gb"): 30.0,
}
_PROCESS: Final = Path("/proc/self")
_FILE_BYTES: Final = 2_500_000
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NAME_OF_PIPELINE: Final = PipelineName("bench")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in a store, and the pipeline that wrote it."""

    pipeline: Pipeline
    manifest: CheckpointManifest

    @property
    def megabytes(self) -> float:
        """Of its state."""
        return self.manifest.total_size_bytes / _MEGABYTE

    def keys(self) -> list[str]:
        """Of its state's files."""
        return [each.key for each in RecoveryPlan.from_manifest(self.manifest).operator_snapshots]


def write_checkpoint(
    store: ObjectStore, size_bytes: int, *, operators: int = 2, sources: int = 1
) -> Checkpoint:
    """The first epoch of a pipeline, with so much state.

    Args:
        store: Where.
        size_bytes: Of all state; cut into files of 2.5 megabytes.
        operators: How many share it.
        sources: How many were read.
    """
    ids = [SourceId(f"source_{number:02d}") for number in range(sources)]
    pipeline = Pipeline(
        name=_NAME_OF_PIPELINE,
        fingerprint="bench",
        checkpoints=CheckpointStore(store),
        engine=NoEngine(_NAME_OF_PIPELINE),
        sources=tuple(MemorySource(MemoryLog(), source_id=each) for each in ids),
        sinks=(),
    )
    planned = EpochPlan(
        version=FORMAT_VERSION,
        plan_id=mint_checkpoint_id(),
        pipeline=_NAME_OF_PIPELINE,
        epoch=EpochNumber(1),
        clock=_START,
        fingerprint="bench",
        parent=None,
        sources=tuple(
            SourcePlan(
                source_id=each,
                identity=CustomIdentity(source_type="memory", identity="log"),
                ranges=(SourceRange(start=_position(each, 0), end=_position(each, 100)),),
            )
            for each in ids
        ),
        sinks=(),
    )
    attempt = mint_checkpoint_id()
    checkpoints = pipeline.checkpoints
    checkpoints.create_plan(planned)
    checkpoints.begin_attempt(
        AttemptRecord(
            version=FORMAT_VERSION,
            epoch=EpochNumber(1),
            checkpoint_id=attempt,
            started_at=_START,
        )
    )
    manifest = ManifestBuilder(
        CheckpointManifest(
            version=FORMAT_VERSION,
            checkpoint_id=attempt,
            epoch=EpochNumber(1),
            pipeline=_NAME_OF_PIPELINE,
            fingerprint="bench",
            plan_checksum=checksum(planned),
            previous_checkpoint_id=None,
            started_at=_START,
            completed_at=_START,
            total_size_bytes=0,
            counts=RecordCounts(),
            operators=tuple(
                _operator(store, attempt, OperatorId(f"view_{number:02d}"), size_bytes // operators)
                for number in range(operators)
            ),
            sources=tuple(
                SourceOffsetEntry(
                    source_id=each,
                    positions=(_position(each, 100),),
                    path=layout.offsets_path(each),
                )
                for each in ids
            ),
        )
    ).build()
    for entry in manifest.sources:
        checkpoints.write_offsets(offsets_of(manifest, entry))
    checkpoints.create_prepared(Prepared.of(manifest))
    checkpoints.write_manifest(Prepared.of(manifest))
    checkpoints.advance_latest(manifest)
    return Checkpoint(pipeline, manifest)


def recovery_local(surroundings: Surroundings) -> Iterator[Figure]:
    """From a disk."""
    for name, size in _sizes(surroundings).items():
        made = write_checkpoint(surroundings.local_store(), size)
        yield from _throughput(surroundings, "local", name, made)


def recovery_s3(surroundings: Surroundings) -> Iterator[Figure]:
    """From an S3 server on the same machine."""
    for name, size in _sizes(surroundings).items():
        made = write_checkpoint(surroundings.bucket().store, size)
        yield from _throughput(surroundings, "s3", name, made)


def recovery_parts(surroundings: Surroundings) -> Iterator[Figure]:
    """The parts of a recovery that do not grow with the state."""
    made = write_checkpoint(surroundings.local_store(), 100_000, operators=20, sources=10)
    manager = RecoveryManager(made.pipeline)
    (whole,) = one_by_one(surroundings.effort, call(manager.recover))
    yield Figure(
        f"{_NAME}/10-sources-20-operators",
        "recover 10 sources and 20 operators with little state",
        whole,
        limit=5.0,
    )
    (found,) = one_by_one(surroundings.effort, call(partial(discover, made.pipeline, None)))
    yield Figure(
        f"{_NAME}/manifest",
        "find, read and validate the newest manifest and the records around it",
        found,
        limit=0.1,
    )


def recovery_progress(surroundings: Surroundings) -> Iterator[Figure]:
    """What it costs to be told of the progress, at every single file."""
    made = write_checkpoint(surroundings.local_store(), surroundings.effort.scaled(10_000_000))
    manager = RecoveryManager(made.pipeline)
    (whole,) = one_by_one(surroundings.effort, call(manager.recover))
    reporter = ProgressReporter(lambda _progress: None, SystemClock(), 0.0)
    (once,) = in_batches(surroundings.effort, code("reporter.read(1)", reporter=reporter))
    reports = len(made.keys()) + len(RecoveryPhase)
    yield Figure(
        f"{_NAME}/progress",
        "share of a recovery's time that progress takes when it is told for every file",
        Sample(tuple(once.median * reports / each for each in whole.values)),
        unit="share",
        limit=0.01,
        note=f"{reports} reports; by default one in five seconds, and of every phase",
    )


BENCHMARKS: Final = (
    Benchmark(f"{_NAME}-local", "state restored from a disk", recovery_local),
    Benchmark(f"{_NAME}-s3", "state restored from S3", recovery_s3),
    Benchmark(f"{_NAME}-parts", "what does not grow with the state", recovery_parts),
    Benchmark(f"{_NAME}-progress", "what telling of progress costs", recovery_progress),
)


def _throughput(
    surroundings: Surroundings, place: str, name: str, made: Checkpoint
) -> Iterator[Figure]:
    """Seconds, and megabytes a second beside reading and hashing the same objects raw.

    Recovery reads and checks the documents as well as the state; so does the peer. Beside the files
    of the state alone is in the note.
    """
    manager = RecoveryManager(made.pipeline)
    store, files = made.pipeline.checkpoints.objects, made.keys()
    everything = [info.key for info in store.list("")]
    own, raw, bare = one_by_one(
        surroundings.effort,
        call(manager.recover),
        call(partial(read_raw, store, everything)),
        call(partial(read_raw, store, files)),
    )
    alone = Sample(tuple(map(truediv, bare.values, own.values))).median
    what = f"recover {made.megabytes:.0f} MB of state, {place}"
    limit = _LIMITS.get((place, name))
    yield Figure(f"{_NAME}/{place}/{name}", what, own, limit=limit)
    yield Figure(
        f"{_NAME}/{place}/{name}/rate",
        what,
        _rate(made.megabytes, own),
        unit="MB/s",
        peer=f"read and SHA-256 of the same {len(everything)} objects in {WORKERS} threads",
        peer_sample=_rate(made.megabytes, raw),
        note=f"aim: at least 0.7 times; beside the {len(files)} files of state alone {alone:.2f}",
    )
    yield Figure(
        f"{_NAME}/{place}/{name}/memory",
        f"memory that recovering {made.megabytes:.0f} MB of state adds at most, {place}",
        Sample((float(_growth(manager.recover)),)),
        unit="bytes",
        note=f"files of 2.5 MB, {WORKERS} at a time",
    )


def read_raw(store: ObjectStore, keys: Sequence[str]) -> None:
    """Read and hash files, and do nothing else."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(lambda key: hashlib.sha256(store.read(key)).digest(), keys):
            pass


def _sizes(surroundings: Surroundings) -> dict[str, int]:
    sizes = _SIZES | (_LARGEST if surroundings.effort.largest else {})
    return {
        name: surroundings.effort.scaled(round(size * _MEGABYTE)) for name, size in sizes.items()
    }


def _rate(size: float, seconds: Sample) -> Sample:
    return Sample(tuple(size / each for each in seconds.values))


def _position(source: SourceId, offset: int) -> KafkaPosition:
    return KafkaPosition(topic=source, partition=0, offset=offset)


def _operator(
    store: ObjectStore, attempt: CheckpointId, operator: OperatorId, size_bytes: int
) -> OperatorSnapshotEntry:
    """State in files of the real shape."""
    import pyarrow as pa

    from laminar_dagster.spark.aggregates import PartialColumn
    from laminar_dagster.spark.arrow_files import file_bytes
    from laminar_dagster.spark.columns import END
    from laminar_dagster.spark.state_shape import KeyColumn, StateShape

    column = PartialColumn("_a0", None, "count", "sum", pa.int64())
    shape = StateShape(operator, (KeyColumn("_k0", "page", pa.string()),), (column,))
    # Window, count, and a key of twelve bytes with its offset.
    rows = max(1, min(size_bytes, _FILE_BYTES) // 32)
    files = max(1, round(size_bytes / (32 * rows)))
    parts = []
    for number in range(files):
        table = pa.table(
            {
                END: pa.array(range(rows)),
                "_k0": pa.array([f"/{number:03d}/{row:07d}" for row in range(rows)]),
                "_a0": pa.array(range(rows)),
            }
        )
        data = file_bytes(table.cast(shape.schema))
        partition = PartitionId(number)
        path = layout.snapshot_path(operator, partition)
        store.put(layout.checkpoint_key(attempt, path), data)
        parts.append(
            PartitionSnapshotEntry(
                partition_id=partition,
                path=path,
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                rows=rows,
            )
        )
    return OperatorSnapshotEntry(
        operator_id=operator,
        operator_type="window_aggregate",
        state_backend="arrow",
        partitions=tuple(parts),
    )


def _growth(act: Callable[[], object]) -> int:
    """What a call adds to the memory of this process at most. Linux forgets the most on request."""
    gc.collect()
    (_PROCESS / "clear_refs").write_text("5")
    before = _status("VmRSS")
    act()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the system does not tell {name}")
    return int(found[1]) * 1024

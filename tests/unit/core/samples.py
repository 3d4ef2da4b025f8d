"""Small, fixed parts of documents, for tests that break one thing at a time."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    FileEntry,
    OperatorSnapshotEntry,
    Origin,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import KafkaIdentity, KafkaPosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint, SinkPlan, SourcePlan

MOMENT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
AGG = OperatorId("agg")
CLICKS = SourceId("clicks")
LAKE = SinkId("lake")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def checkpoint(number: int, *, minted: int | None = None) -> CheckpointId:
    """A checkpoint id that sorts by ``minted``, by default as its number does."""
    milliseconds = 1_700_000_000_000 + (number if minted is None else minted) * 1000
    return CheckpointId.from_parts(milliseconds, number)


def kafka(offset: int, *, partition: int = 0, topic: str = "clicks") -> KafkaPosition:
    return KafkaPosition(topic=topic, partition=partition, offset=offset)


def state_file(
    epoch: int,
    *,
    delta: bool = False,
    full: bool | None = None,
    origin: CheckpointId | None = None,
    operator: OperatorId = AGG,
    partition: int = 0,
    size: int = 10,
) -> PartitionSnapshotEntry:
    """A file of state, written in ``epoch`` by ``origin`` (or by the manifest's own attempt)."""
    bucket = PartitionId(partition)
    build = layout.delta_path if delta else layout.snapshot_path
    return PartitionSnapshotEntry(
        partition_id=bucket,
        path=build(operator, bucket),
        size_bytes=size,
        sha256=sha(f"{operator} {partition} {epoch}"),
        is_incremental=delta if full is None else not full,
        origin=Origin(checkpoint_id=origin, epoch=EpochNumber(epoch)) if origin else None,
    )


def operator(
    *files: PartitionSnapshotEntry, operator_id: OperatorId = AGG
) -> OperatorSnapshotEntry:
    return OperatorSnapshotEntry(
        operator_id=operator_id,
        operator_type="tumbling_window",
        state_backend="arrow",
        partitions=files,
    )


def source(
    *positions: KafkaPosition, source_id: SourceId = CLICKS, **changes: Any
) -> SourceOffsetEntry:
    values: dict[str, Any] = {
        "source_id": source_id,
        "positions": positions,
        "path": layout.offsets_path(source_id),
    }
    return SourceOffsetEntry(**(values | changes))


def file_entry(path: str, *, size: int = 7, rows: int = 1) -> FileEntry:
    return FileEntry(path=path, size_bytes=size, sha256=sha(path), rows=rows)


def sink(
    sink_id: SinkId = LAKE, *, joined_at: int = 1, files: tuple[FileEntry, ...] | None = None
) -> SinkEntry:
    if files is None:
        files = (file_entry(layout.staged_path(sink_id, FileName("part-0.arrow"))),)
    return SinkEntry(
        sink_id=sink_id,
        joined_at=EpochNumber(joined_at),
        files=files,
        output_sha256=sha(sink_id),
    )


def dead_letters(source_id: SourceId = CLICKS, path: str | None = None) -> DeadLetterEntry:
    name = path or layout.dead_letter_path(source_id, FileName("bad-0.arrow"))
    return DeadLetterEntry(source_id=source_id, files=(file_entry(name),))


def manifest(number: int = 1, **changes: Any) -> CheckpointManifest:
    """A small valid manifest of epoch ``number``, with any member replaced."""
    values: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "checkpoint_id": checkpoint(number),
        "epoch": EpochNumber(number),
        "pipeline": PipelineName("clickstream"),
        "fingerprint": "f1",
        "plan_checksum": sha(f"plan {number}"),
        "previous_checkpoint_id": checkpoint(number - 1) if number > 1 else None,
        "started_at": MOMENT,
        "completed_at": MOMENT + timedelta(seconds=3),
        "operators": (operator(state_file(number)),),
        "sources": (source(kafka(100)),),
        "sinks": (sink(),),
        "counts": RecordCounts(read=2, processed=1, late=1),
    }
    values |= changes
    sizes = sum(part.size_bytes for entry in values["operators"] for part in entry.partitions)
    values.setdefault("total_size_bytes", sizes)
    return CheckpointManifest(**values)


def source_plan(*ranges: SourceRange, **changes: Any) -> SourcePlan:
    values: dict[str, Any] = {
        "source_id": CLICKS,
        "identity": KafkaIdentity(cluster_id="c", topic_ids={"clicks": "t"}),
        "ranges": ranges or (SourceRange(start=kafka(0), end=kafka(100)),),
    }
    return SourcePlan(**(values | changes))


def plan(number: int = 1, **changes: Any) -> EpochPlan:
    values: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "plan_id": checkpoint(number + 500),
        "pipeline": PipelineName("clickstream"),
        "epoch": EpochNumber(number),
        "clock": MOMENT,
        "fingerprint": "f1",
        "parent": parent(number - 1) if number > 1 else None,
        "sources": (source_plan(),),
        "sinks": (SinkPlan(sink_id=LAKE, joined_at=EpochNumber(1)),),
    }
    return EpochPlan(**(values | changes))


def parent(number: int) -> ParentCheckpoint:
    return ParentCheckpoint(
        checkpoint_id=checkpoint(number),
        epoch=EpochNumber(number),
        manifest_checksum=sha(f"manifest {number}"),
    )


def problem_of(checked: CheckpointManifest) -> str:
    """Why a manifest is not valid; empty if it is."""
    try:
        checked.validate()
    except IntegrityError as error:
        return str(error)
    return ""

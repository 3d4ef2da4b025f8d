"""Manifests to measure with: the size of real ones, and no easier to compress."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION
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
from laminar_dagster.core.offsets import KafkaPosition

_START = datetime(2026, 1, 1, tzinfo=UTC)
_PREVIOUS = CheckpointId.from_parts(1_767_225_000_000, 1)


def manifest(
    *, sources: int, operators: int, checkpoint: CheckpointId | None = None, epoch: int = 2
) -> CheckpointManifest:
    """A valid manifest with one partition for each source and each operator."""
    template = CheckpointManifest(
        version=FORMAT_VERSION,
        checkpoint_id=checkpoint or CheckpointId.from_parts(1_767_225_600_000, 2),
        epoch=EpochNumber(epoch),
        pipeline=PipelineName("orders"),
        fingerprint=_digest("fingerprint"),
        plan_checksum=_digest("plan"),
        previous_checkpoint_id=_PREVIOUS,
        started_at=_START,
        completed_at=_START + timedelta(milliseconds=1234.567),
        total_size_bytes=0,
        counts=RecordCounts(read=1000, processed=990, filtered=10),
        operators=tuple(_operator(number) for number in range(operators)),
        sources=tuple(_source(number) for number in range(sources)),
    )
    return ManifestBuilder(template).build()


def _operator(number: int) -> OperatorSnapshotEntry:
    operator = OperatorId(f"window_aggregate_{number:04}")
    digest = _digest(operator)
    partition = PartitionId(0)
    return OperatorSnapshotEntry(
        operator_id=operator,
        operator_type="window_aggregate",
        state_backend="arrow",
        partitions=(
            PartitionSnapshotEntry(
                partition_id=partition,
                path=layout.snapshot_path(operator, partition),
                size_bytes=int(digest[:5], 16),
                sha256=digest,
            ),
        ),
    )


def _source(number: int) -> SourceOffsetEntry:
    source = SourceId(f"orders_{number:04}")
    offset = int(_digest(source)[:8], 16)
    return SourceOffsetEntry(
        source_id=source,
        positions=(KafkaPosition(topic=source, partition=0, offset=offset),),
        path=layout.offsets_path(source),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""What an epoch of upkeep leaves, beside the state that it is about."""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import structs

from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    RecordCounts,
    SinkEntry,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput, Violation

NO_OUTPUT: Final = hashlib.sha256(b"").hexdigest()


def output_of_upkeep(
    plan: EpochPlan,
    parent: CheckpointManifest,
    operators: tuple[OperatorSnapshotEntry, ...],
    violations: tuple[Violation, ...] = (),
) -> EpochOutput:
    """An epoch that read no record: sources stand where they stood, and sinks get nothing.

    Args:
        plan: What was carried out.
        parent: The checkpoint that it builds on.
        operators: The state, as it is now.
        violations: What speaks against publishing it.
    """
    planned = {source.source_id for source in plan.sources}
    return EpochOutput(
        operators=operators,
        # How the parent's epoch read is the parent's business.
        sources=tuple(
            structs.replace(entry, schema_ids=(), reading=None)
            for entry in parent.sources
            if entry.source_id in planned
        ),
        sinks=tuple(
            SinkEntry(
                sink_id=sink.sink_id,
                joined_at=sink.joined_at,
                files=(),
                output_sha256=NO_OUTPUT,
            )
            for sink in plan.sinks
        ),
        dead_letters=(),
        counts=RecordCounts(),
        watermark=parent.watermark,
        violations=violations,
    )

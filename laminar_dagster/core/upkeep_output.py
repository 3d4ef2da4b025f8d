"""The output of an epoch of upkeep: new state, unchanged source positions, nothing for sinks."""

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
    """The output of an epoch that read nothing: sources keep their positions, sinks get no rows.

    Args:
        plan: The plan that was carried out.
        parent: The checkpoint that it builds on.
        operators: The new state.
        violations: Failed checks, for which it must not be published.
    """
    planned = {source.source_id for source in plan.sources}
    return EpochOutput(
        operators=operators,
        # Without the parent's reading metrics and schema ids: this epoch has read nothing.
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

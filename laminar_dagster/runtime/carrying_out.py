"""Executes an epoch's plan, for the first time or again; does not decide which attempt wins."""

from __future__ import annotations

from laminar_dagster.core.errors import PipelineChanged
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput, ReadByName
from laminar_dagster.core.prepared import AttemptRecord
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime.pipeline import Pipeline


def check_sources(pipeline: Pipeline, planned: EpochPlan) -> None:
    """Refuse a plan whose sources no longer hold what it pinned, before each time it is executed.

    Raises:
        SourceReplaced, RetentionExpired: A source no longer holds what was planned.
        PipelineChanged: The pipeline no longer has a source that was planned.
    """
    sources = {source.source_id: source for source in pipeline.sources}
    for part in planned.sources:
        if part.source_id not in sources:
            raise PipelineChanged(planned.epoch, f"it has no source {part.source_id} any more")
        # Upkeep reads no records, so it can run while a source is unavailable or replaced.
        if not planned.upkeep:
            sources[part.source_id].verify(part)


def carry_out(
    pipeline: Pipeline,
    planned: EpochPlan,
    parent: CheckpointManifest | None,
    record: AttemptRecord,
) -> EpochOutput:
    """Execute a plan, staging files in the attempt's folder: by the engine, but for a promotion.

    The plan may be another version's, with a sink that this one lacks and has no view for. Such a
    sink takes no part in the epoch. Were it listed with nothing staged, it would commit an empty
    output when it comes back, and lose the epoch's rows; left out, it joins anew, or is refused.

    Raises:
        SourceReplaced: A source was replaced while it was read.
    """
    if isinstance(planned.upkeep, Promotion) and parent:
        # Imported here: pipelines that have no branches need nothing of it.
        from laminar_dagster.runtime.branches.promotion import compute_promotion

        checkpoints, attempt = pipeline.checkpoints, record.checkpoint_id
        return compute_promotion(checkpoints, planned, planned.upkeep, parent, attempt)
    if not planned.upkeep:
        # Not for a rescale: it stages no rows, so a sink that this version lacks misses none.
        planned = planned.narrowed_to({sink.sink_id for sink in pipeline.sinks})
    output = pipeline.engine.compute(planned, parent, record.checkpoint_id)
    if not planned.upkeep:
        _check_what_was_read(pipeline, planned)
    return output


def _check_what_was_read(pipeline: Pipeline, planned: EpochPlan) -> None:
    """Refuse sources replaced during the read: a recreated topic has the same name and offsets."""
    parts = {part.source_id: part for part in planned.sources}
    for source in pipeline.sources:
        if isinstance(source, ReadByName) and source.source_id in parts:
            source.require_not_replaced(parts[source.source_id])

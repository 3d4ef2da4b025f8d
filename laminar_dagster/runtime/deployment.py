"""Whether a changed pipeline can go on with the stored state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, compare_definitions
from laminar_dagster.core.errors import PipelineChanged, StateIncompatible
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.upkeep import Promotion, Rescale, Upkeep, describe_upkeep
from laminar_dagster.runtime.branches.records import stored_branch
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline

HOW_TO_RESCALE: Final = (
    "`laminar rescale` spreads the state over as many buckets as pipeline.yml says"
)


def changes_since(
    new: PipelineDefinition, parent: CheckpointManifest | None, checkpoints: CheckpointStore | None
) -> tuple[OperatorChange, ...]:
    """Each operator's verdict (keep, rebuild, rescale, …) when going on from a checkpoint.

    Args:
        new: The pipeline as it is now.
        parent: The checkpoint; None when there is none yet.
        checkpoints: The store with the definition that computed the checkpoint.
    """
    if parent is None or checkpoints is None:
        reason = "there is no checkpoint yet"
        return tuple(OperatorChange(each.operator_id, "new", (reason,)) for each in new.operators)
    if parent.fingerprint == new.fingerprint:
        return tuple(OperatorChange(each.operator_id, "keep") for each in new.operators)
    old = checkpoints.definition(parent.fingerprint)
    if old is None:
        reason = f"nobody wrote down what computed it (fingerprint {parent.fingerprint[:12]})"
        stored = [each.operator_id for each in parent.operators]
        return tuple(OperatorChange(each, "rebuild", (reason,)) for each in stored)
    return compare_definitions(old, new)


def require_compatible(
    pipeline: Pipeline, parent: CheckpointManifest | None, upkeep: Upkeep | None = None
) -> None:
    """Refuse to go on with state that the changed pipeline cannot use.

    Args:
        pipeline: As it is now.
        parent: The checkpoint that has the state; None when there is none yet.
        upkeep: What the epoch does to the state: a rescale may start from another number of
            buckets, and a promotion replaces the state altogether.

    Raises:
        StateIncompatible: Names an operator whose state would have to be rebuilt or rescaled first,
            and why.
    """
    if pipeline.definition is None or isinstance(upkeep, Promotion):
        return
    changes = changes_since(pipeline.definition, parent, pipeline.checkpoints)
    for change in changes:
        if change.verdict == "rebuild":
            raise StateIncompatible(change.operator_id, "; ".join(change.reasons))
    for change in changes:
        if change.verdict == "rescale" and not isinstance(upkeep, Rescale):
            reason = "; ".join(change.reasons)
            raise StateIncompatible(change.operator_id, reason, HOW_TO_RESCALE)


def require_fit(pipeline: Pipeline, planned: EpochPlan) -> None:
    """Refuse upkeep whose outcome this process's version of the pipeline could not use.

    Raises:
        PipelineChanged: Another version planned it: a rescale to another number of buckets, or a
            promotion of a version that replaces this one.
    """
    upkeep, definition = planned.upkeep, pipeline.definition
    if isinstance(upkeep, Promotion) and pipeline.fingerprint != planned.fingerprint:
        was, now = planned.fingerprint[:12], pipeline.fingerprint[:12]
        what = f"it is the {describe_upkeep(upkeep)}, to version {was}, and this one is {now}"
        raise PipelineChanged(planned.epoch, what)
    if isinstance(upkeep, Rescale) and definition and definition.buckets != upkeep.buckets_after:
        what = f"it is a {describe_upkeep(upkeep)}, and this one has {definition.buckets}"
        raise PipelineChanged(planned.epoch, what)


def require_fit_to_publish(pipeline: Pipeline, planned: EpochPlan) -> None:
    """As ``require_fit``; and refuse a promotion that was planned for other sinks than these.

    The fingerprint does not cover sinks. A process that lacks one would skip it as removed, and one
    that still appends to a sink that has a key by now would append the corrections.

    Raises:
        PipelineChanged: It was planned by another version, or for other sinks.
    """
    require_fit(pipeline, planned)
    if not isinstance(planned.upkeep, Promotion):
        return
    what = ""
    known = {sink.sink_id for sink in pipeline.sinks}
    missing = [sink.sink_id for sink in planned.sinks if sink.sink_id not in known]
    record = stored_branch(pipeline.checkpoints.objects, planned.upkeep.branch)
    if missing:
        what = f"is for a sink {missing[0]}, and this one has none"
    elif record and pipeline.published is not None:
        record = structs.replace(record, sinks=_as_written(record.sinks))
        what = record.mismatch_with_version(planned.fingerprint, _as_written(pipeline.published))
    if what:
        raise PipelineChanged(planned.epoch, f"the {describe_upkeep(planned.upkeep)}: it {what}")


def _as_written(sinks: Iterable[BranchSink]) -> tuple[BranchSink, ...]:
    """Sinks as declared, without the window that was inferred for their keys."""
    return tuple(structs.replace(sink, window=None) for sink in sinks)

"""Whether a pipeline that was changed can go on with the state that is there."""

from __future__ import annotations

from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, compare_definitions
from laminar_dagster.core.errors import StateIncompatible
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline


def changes_since(
    new: PipelineDefinition, parent: CheckpointManifest | None, checkpoints: CheckpointStore | None
) -> tuple[OperatorChange, ...]:
    """What becomes of each operator's state when a pipeline goes on from a checkpoint.

    Args:
        new: The pipeline as it is now.
        parent: The checkpoint; None when there is none yet.
        checkpoints: Where it is.
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


def require_compatible(pipeline: Pipeline, parent: CheckpointManifest | None) -> None:
    """Refuse to go on with a state that means something else.

    Raises:
        StateIncompatible: Names an operator whose state would have to be rebuilt, and why.
    """
    if pipeline.definition is None:
        return
    for change in changes_since(pipeline.definition, parent, pipeline.checkpoints):
        if change.verdict == "rebuild":
            raise StateIncompatible(change.operator_id, "; ".join(change.reasons))

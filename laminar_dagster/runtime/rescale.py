"""Whether a pipeline's state has to be spread over another number of buckets."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.errors import StateIncompatible, UpkeepWaits
from laminar_dagster.core.ids import EpochNumber, OperatorId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.deployment import changes_since
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.upkeep import begun_upkeep


@dataclass(frozen=True, slots=True)
class RescaleNeeded:
    """The state is spread over another number of buckets than the pipeline has.

    Attributes:
        parent: The checkpoint with the state as it is.
        begun: The epoch of an earlier, unfinished rescale, to be finished; None if there is none.
    """

    upkeep: Rescale
    parent: CheckpointManifest
    begun: EpochNumber | None = None


@dataclass(frozen=True, slots=True)
class StateSize:
    """The number and size of an operator's state files."""

    files: int = 0
    size_bytes: int = 0


def rescale_needed(new: PipelineDefinition, checkpoints: CheckpointStore) -> RescaleNeeded | None:
    """The rescale that brings the state to the pipeline's number of buckets; None if not needed.

    Raises:
        StateIncompatible: The number of buckets is not the only obstacle.
        UpkeepWaits: An epoch is unfinished.
    """
    standing = survey(checkpoints)
    begun = begun_upkeep(checkpoints, standing)
    if begun and isinstance(begun.upkeep, Rescale) and begun.upkeep.buckets_after == new.buckets:
        planned = checkpoints.plan(begun.epoch)
        if planned and planned.parent:
            parent = checkpoints.parent(planned.parent)
            return RescaleNeeded(begun.upkeep, parent, begun.epoch)
    newest = newest_manifest(checkpoints, standing)
    if newest is None:
        return None
    changes = changes_since(new, newest, checkpoints)
    for change in changes:
        if change.verdict == "rebuild":
            raise StateIncompatible(change.operator_id, "; ".join(change.reasons))
    old = checkpoints.definition(newest.fingerprint)
    if old is None or all(change.verdict != "rescale" for change in changes):
        return None
    if standing.unfinished:
        raise UpkeepWaits(standing.unfinished[0])
    return RescaleNeeded(Rescale(buckets_before=old.buckets, buckets_after=new.buckets), newest)


def state_sizes(manifest: CheckpointManifest) -> dict[OperatorId, StateSize]:
    """How many files each operator's state has, and of what size."""
    return {
        each.operator_id: StateSize(
            len(each.partitions), sum(part.size_bytes for part in each.partitions)
        )
        for each in manifest.operators
    }

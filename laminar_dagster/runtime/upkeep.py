"""Plans epochs of upkeep, which change the state and read nothing: see ``core.upkeep``.

Such an epoch is planned by an explicit command. Once planned, it is an epoch like any other: any
process may execute it, and ``EpochRunner.run`` takes it to its end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.errors import (
    NoCheckpointAvailable,
    ObjectExists,
    UpkeepFenced,
    UpkeepWaits,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import SourceRange
from laminar_dagster.core.plan import EpochPlan, SinkPlan, SourcePlan
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.recovery import Standing
from laminar_dagster.core.succession import require_current
from laminar_dagster.core.upkeep import Promotion, Upkeep, describe_upkeep
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.deployment import require_compatible, require_fit_to_publish
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.references import pins_standing_still
from laminar_dagster.runtime.steps import join
from laminar_dagster.runtime.survey import newest_manifest, survey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BegunUpkeep:
    """An epoch of upkeep that some process has planned, and that is not finished."""

    epoch: EpochNumber
    upkeep: Upkeep


def begun_upkeep(checkpoints: CheckpointStore, standing: Standing) -> BegunUpkeep | None:
    """The upkeep that the oldest unfinished epoch carries out; None when there is none."""
    unfinished = standing.unfinished
    planned = checkpoints.plan(unfinished[0]) if unfinished else None
    if planned is None or planned.upkeep is None:
        return None
    return BegunUpkeep(planned.epoch, planned.upkeep)


def plan_upkeep(
    pipeline: Pipeline, upkeep: Upkeep, epoch: EpochNumber | None = None
) -> EpochNumber:
    """Plan the next epoch as one of upkeep. Idempotent: the same upkeep, if begun, is continued.

    No source is asked. A source that is new to the pipeline takes part from the next ordinary epoch
    on; so does a sink, but for a promotion, whose corrections may be all that a new sink gets.

    Args:
        pipeline: As it is now.
        upkeep: What to do.
        epoch: The only epoch that may carry it out; None for whichever is next.

    Returns:
        The epoch, for ``EpochRunner.run``.

    Raises:
        UpkeepWaits: An earlier epoch is not finished, or not confirmed by every sink.
        UpkeepFenced: Another process planned the epoch for something else.
        LedgerMismatch: A sink that would join with a promotion has a ledger from before.
        NoCheckpointAvailable: There is no state yet.
        VersionReplaced: Another version has replaced this one.
        StateIncompatible, PipelineChanged: The pipeline as it is now could not use the outcome.
    """
    checkpoints = pipeline.checkpoints
    standing = survey(checkpoints)
    begun = begun_upkeep(checkpoints, standing)
    if begun and begun.upkeep == upkeep:
        log.info("epoch %d, %s, was begun before", begun.epoch, describe_upkeep(upkeep))
        return begun.epoch
    if standing.unfinished:
        raise UpkeepWaits(standing.unfinished[0])
    parent = newest_manifest(checkpoints, standing)
    if parent is None:
        raise NoCheckpointAvailable(checkpoints.objects.url)
    if epoch is not None and parent.epoch.next() != epoch:
        raise UpkeepFenced(epoch, "it reads records")
    planned = _plan(pipeline, parent, upkeep)
    require_fit_to_publish(pipeline, planned)
    if not isinstance(upkeep, Promotion):
        # A promotion may bring back a version that was replaced before.
        require_current(pipeline.fingerprint, planned.epoch, parent)
    require_compatible(pipeline, parent, upkeep)
    if pipeline.definition:
        checkpoints.create_definition(pipeline.definition)
    try:
        checkpoints.create_plan(planned)
    except ObjectExists:
        found = checkpoints.plan(planned.epoch)
        if found is None or found.upkeep != upkeep:
            what = describe_upkeep(found.upkeep) if found and found.upkeep else "it reads records"
            raise UpkeepFenced(planned.epoch, what) from None
    return planned.epoch


def _plan(pipeline: Pipeline, parent: CheckpointManifest, upkeep: Upkeep) -> EpochPlan:
    previous = pipeline.checkpoints.plan_of(parent)
    joined = {sink.sink_id: sink.joined_at for sink in parent.sinks}
    if isinstance(upkeep, Promotion):
        epoch = parent.epoch.next()
        new = (sink for sink in pipeline.sinks if sink.sink_id not in joined)
        joined |= {sink.sink_id: join(sink, epoch) for sink in new}
    return EpochPlan(
        version=FORMAT_VERSION,
        plan_id=pipeline.mint(),
        pipeline=pipeline.name,
        epoch=parent.epoch.next(),
        # The logical clock never runs backwards, whatever the machine's does.
        clock=max(pipeline.clock.now(), previous.clock),
        fingerprint=pipeline.fingerprint,
        parent=LatestPointer.to(parent).as_parent(),
        sources=tuple(_standing_still(pipeline, previous, parent)),
        sinks=tuple(
            SinkPlan(sink_id=sink.sink_id, joined_at=joined[sink.sink_id])
            for sink in pipeline.sinks
            if sink.sink_id in joined
        ),
        upkeep=upkeep,
        references=pins_standing_still(pipeline, parent),
    )


def _standing_still(
    pipeline: Pipeline, previous: EpochPlan, parent: CheckpointManifest
) -> Iterator[SourcePlan]:
    """The sources as planned last, with empty ranges at the positions they have reached."""
    reached = {entry.source_id: entry.positions for entry in parent.sources}
    known = {source.source_id for source in pipeline.sources}
    for source in previous.sources:
        if source.source_id not in known:
            continue  # removed from the pipeline: an ordinary epoch would not plan it either
        ends = reached.get(source.source_id, ())
        ranges = tuple(SourceRange(start=end, end=end) for end in ends)
        yield structs.replace(source, ranges=ranges, gaps=())

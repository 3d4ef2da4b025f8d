"""The plan of an epoch: what it reads, and the only "now" it may use.

A plan is written once, before anything is read. Every attempt at the epoch reads the same plan, so
every attempt computes the same output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from laminar_dagster.core.document import (
    Document,
    Natural,
    Record,
    Sha256,
    Text,
    Timestamp,
    require_utc,
)
from laminar_dagster.core.ids import (
    GENESIS,
    CheckpointId,
    EpochNumber,
    PipelineName,
    SinkId,
    SourceId,
)
from laminar_dagster.core.offsets import (
    Gap,
    SourceIdentity,
    SourcePosition,
    SourceRange,
    lane_of,
)
from laminar_dagster.core.reference import ReferencePin, require_each_once
from laminar_dagster.core.upkeep import Promotion, Rescale


class ParentCheckpoint(Record, frozen=True, kw_only=True):
    """The checkpoint an epoch builds on, with a checksum, so that a damaged one is noticed."""

    checkpoint_id: CheckpointId
    epoch: EpochNumber
    manifest_checksum: Sha256


class Quiet(Record, frozen=True, kw_only=True):
    """A partition without new records, and the clock of the first plan in a row that found none."""

    position: SourcePosition
    since: Timestamp

    def __post_init__(self) -> None:
        """Refuse a time without a zone."""
        require_utc("since", self.since)


class SourcePlan(Record, frozen=True, kw_only=True):
    """What an epoch reads of one source.

    Attributes:
        idle: Idle partitions, which do not hold back the watermark.
        quiet: Partitions without new records, and since when: later plans decide by it what is
            idle.
        max_ahead_micros: How far the event time of a record may be ahead of the plan's clock. None
            is no bound, as in older plans, whose output must not change when they run again.
    """

    source_id: SourceId
    identity: SourceIdentity
    ranges: tuple[SourceRange, ...]
    idle: tuple[SourcePosition, ...] = ()
    gaps: tuple[Gap, ...] = ()
    quiet: tuple[Quiet, ...] = ()
    max_ahead_micros: Natural | None = None

    def __post_init__(self) -> None:
        """Refuse a partition that is planned twice, or idle without being planned."""
        lanes = [lane_of(part.start) for part in self.ranges]
        if len(set(lanes)) != len(lanes):
            raise ValueError(f"source {self.source_id} plans a partition twice")
        if not {lane_of(position) for position in self.idle} <= set(lanes):
            raise ValueError(f"source {self.source_id} has an idle partition it does not plan")


class SinkPlan(Record, frozen=True, kw_only=True):
    """A sink that takes part in the epoch, and the first epoch it took part in."""

    sink_id: SinkId
    joined_at: EpochNumber


class EpochPlan(Document, frozen=True, kw_only=True):
    """Everything an attempt needs to know, fixed before the first record is read.

    Attributes:
        plan_id: An id that tells this writer's plan from another's.
        clock: The logical clock; the job may use no other.
        fingerprint: The fingerprint of the pipeline's code and configuration.
        parent: The checkpoint it builds on; None for the first epoch.
        upkeep: What is done to the state instead of reading; None for an ordinary epoch.
        references: The pinned snapshots of reference tables.
    """

    plan_id: CheckpointId
    pipeline: PipelineName
    epoch: EpochNumber
    clock: Timestamp
    fingerprint: Text
    parent: ParentCheckpoint | None
    sources: tuple[SourcePlan, ...]
    sinks: tuple[SinkPlan, ...]
    upkeep: Rescale | Promotion | None = None
    references: tuple[ReferencePin, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a plan that contradicts itself."""
        require_utc("clock", self.clock)
        if self.epoch == GENESIS:
            raise ValueError("epochs are numbered from 1")
        if self.parent and self.parent.epoch == GENESIS:
            raise ValueError("the first epoch builds on no checkpoint")
        above = self.parent.epoch if self.parent else GENESIS
        if self.epoch != above + 1:
            raise ValueError(f"epoch {self.epoch} cannot build on epoch {above}")
        if len({source.source_id for source in self.sources}) != len(self.sources):
            raise ValueError("a source is planned twice")
        if len({sink.sink_id for sink in self.sinks}) != len(self.sinks):
            raise ValueError("a sink is planned twice")
        if any(not GENESIS < sink.joined_at <= self.epoch for sink in self.sinks):
            raise ValueError("a sink joins after the epoch that already uses it")
        require_each_once(self.references)
        if any(pin.epoch > self.epoch for pin in self.references):
            raise ValueError("a reference table is pinned to a copy of a later epoch")
        if self.upkeep:
            self._check_upkeep()

    def narrowed_to(self, sinks: Collection[SinkId]) -> EpochPlan:
        """The plan with only some of its sinks."""
        return structs.replace(
            self, sinks=tuple(sink for sink in self.sinks if sink.sink_id in sinks)
        )

    def bounded(self, max_ahead: Mapping[SourceId, int]) -> EpochPlan:
        """The plan with bounds on how far event time may be ahead of its clock.

        Args:
            max_ahead: The bound of each source in microseconds; sources without one have no bound.
        """
        sources = (
            structs.replace(source, max_ahead_micros=max_ahead.get(source.source_id))
            for source in self.sources
        )
        return structs.replace(self, sources=tuple(sources))

    def _check_upkeep(self) -> None:
        if not self.parent:
            raise ValueError("upkeep needs a checkpoint that it builds on")
        if any(not part.is_empty for source in self.sources for part in source.ranges):
            raise ValueError("an epoch of upkeep reads nothing")
        if any(source.gaps for source in self.sources):
            raise ValueError("an epoch of upkeep accepts no loss")

"""The backlog: how much waits to be read, asked as the next plan would ask; nothing is written.

A source that cannot answer does not hide the others: its entry holds the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import (
    FilePosition,
    KafkaPosition,
    PostgresPosition,
    SourcePosition,
    SourceRange,
    lane_of,
    progress_of,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Admission, Source
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey

Unit = Literal["records", "bytes"]

_EVERYTHING: Final = Admission()


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """What waits in one source beyond the newest checkpoint.

    Attributes:
        ranges: From where the last epoch ended to where the source ends now, by partition.
        exceeds_epoch: Whether one epoch, with its limits, would leave some of it.
        error: Why the source could not be asked; the other fields then say nothing.
    """

    source_id: SourceId
    ranges: tuple[SourceRange, ...] = ()
    exceeds_epoch: bool = False
    error: LaminarError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, as far as it is known."""
        return all(part.is_empty for part in self.ranges)

    @property
    def waiting(self) -> tuple[SourceRange, ...]:
        """The partitions in which something waits."""
        return tuple(part for part in self.ranges if not part.is_empty)

    @property
    def unit(self) -> Unit | None:
        """What ``amount`` counts; None where positions are no numbers, or of several kinds."""
        kinds = {type(part.start) for part in self.ranges}
        if kinds == {KafkaPosition}:
            return "records"
        return "bytes" if kinds and kinds <= {FilePosition, PostgresPosition} else None

    @property
    def amount(self) -> int | None:
        """How much waits; Kafka records are counted by offset, gaps in the offsets included."""
        if self.error is not None:
            return None
        if self.is_empty:
            return 0
        return sum(map(distance, self.ranges)) if self.unit else None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in all sources, at one moment.

    Attributes:
        committed_at: When the newest epoch was committed; None before the first.
    """

    sources: tuple[SourceBacklog, ...]
    looked_at: datetime
    committed_at: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, as far as it is known."""
        return all(source.is_empty for source in self.sources)

    @property
    def exceeds_epoch(self) -> bool:
        """Whether one epoch would leave some of it."""
        return any(source.exceeds_epoch for source in self.sources)

    @property
    def since_commit(self) -> timedelta | None:
        """How long ago the newest epoch was committed."""
        return self.looked_at - self.committed_at if self.committed_at else None

    def is_taken_by(self, manifest: CheckpointManifest) -> bool:
        """Whether a checkpoint has read all that was seen waiting here."""
        reached = {entry.source_id: entry.positions for entry in manifest.sources}
        return not any(
            is_short_of(reached.get(source.source_id, ()), _ends(source.waiting))
            for source in self.sources
        )

    def require_complete(self) -> None:
        """Refuse a backlog in which a source is missing because of an error.

        Raises:
            LaminarError: The error of the first source that could not be asked.
        """
        for source in self.sources:
            if source.error is not None:
                raise source.error


def backlog_of(pipeline: Pipeline) -> Backlog:
    """What waits for the next epochs of a pipeline.

    Raises:
        LaminarError: The store is unavailable, or damaged. A source's error is in its entry.
    """
    parent = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
    previous = pipeline.checkpoints.plan(parent.epoch) if parent else None
    return measure(pipeline.sources, parent, previous, pipeline.clock.now(), pipeline.limits)


def measure(
    sources: Iterable[Source],
    parent: CheckpointManifest | None,
    previous: EpochPlan | None,
    now: datetime,
    limits: Admission = _EVERYTHING,
) -> Backlog:
    """The backlog of sources beyond a checkpoint.

    Args:
        sources: The sources to ask.
        parent: The newest checkpoint; None before the first epoch.
        previous: The plan of the newest epoch, which pins each source's identity.
        now: The time of the measurement.
        limits: The limits of an epoch, to find out whether one epoch would read it all.
    """
    clock = max(now, previous.clock) if previous else now
    planned = {each.source_id: each for each in previous.sources} if previous else {}
    stood = {each.source_id: each.positions for each in parent.sources} if parent else {}

    def ask(source: Source) -> SourceBacklog:
        name = source.source_id
        before, start = planned.get(name), stood.get(name, ())
        try:
            ranges = source.plan(before, start, _EVERYTHING, clock).ranges
            exceeds = False
            if limits != _EVERYTHING and not all(part.is_empty for part in ranges):
                admitted = source.plan(before, start, limits, clock).ranges
                exceeds = is_short_of(_ends(admitted), _ends(ranges))
        except LaminarError as error:
            return SourceBacklog(name, error=error)
        return SourceBacklog(name, ranges, exceeds)

    found = tuple(ask(source) for source in sources)
    return Backlog(found, now, parent.completed_at if parent else None)


def distance(part: SourceRange) -> int:
    """Bytes of a file or a log, or offsets of a Kafka partition, between two positions; else 0."""
    match part.start, part.end:
        case FilePosition(byte_offset=start), FilePosition(byte_offset=end):
            return end - start
        case PostgresPosition(lsn=start), PostgresPosition(lsn=end):
            return end - start
        case KafkaPosition(offset=start), KafkaPosition(offset=end):
            return end - start
        case _:
            return 0


def is_short_of(reached: Iterable[SourcePosition], wanted: Iterable[SourcePosition]) -> bool:
    """Whether some partition has been read less far than wanted."""
    far = {lane_of(position): progress_of(position) for position in reached}
    return any(
        lane_of(position) not in far or far[lane_of(position)] < progress_of(position)
        for position in wanted
    )


def _ends(ranges: Iterable[SourceRange]) -> tuple[SourcePosition, ...]:
    return tuple(part.end for part in ranges)

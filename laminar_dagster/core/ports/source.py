"""Streams that can be read again: planning on the driver, reading on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import SourceIdentity, SourcePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports.sink import GroupOffsets


@dataclass(frozen=True, slots=True)
class Admission:
    """How much an epoch may take at most. None is no limit."""

    max_records: int | None = None
    max_bytes: int | None = None


class Source(Protocol):
    """A replayable stream. Reading a range twice gives the same records in the same order."""

    @property
    def source_id(self) -> SourceId:
        """Its name within the pipeline."""
        ...

    @property
    def address(self) -> str:
        """Where it is, as a URL without secrets: the same for everybody who uses it."""
        ...

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose the end of the next epoch's ranges, at one moment.

        Starts where the last checkpoint ended, or at the source's beginning for new partitions.
        ``previous`` is the last epoch's plan, whose pinned identity must still hold.

        Raises:
            SourceReplaced: It is another source than the one that was pinned.
            RetentionExpired: It no longer holds ``start``, and ``on_gap`` does not allow a gap.
            SourceUnavailable: It cannot be reached.
        """
        ...

    def verify(self, plan: SourcePlan) -> None:
        """Check that it still holds what a plan pinned, before an attempt reads it.

        Raises:
            SourceReplaced, RetentionExpired: It does not.
            SourceUnavailable: It cannot be reached.
        """
        ...

    def identity(self) -> SourceIdentity:
        """What tells this source from a look-alike."""
        ...

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut a planned range into pieces that can be read side by side, in order."""
        ...

    def reader(self) -> SplitReader:
        """A reader for the executors."""
        ...

    def check_seek(self, position: SourcePosition) -> None:
        """Find out, before recovery promises anything, whether reading can resume there.

        Raises:
            RetentionExpired, SlotNotFound, SourceReplaced, SeekFailed: It cannot, and why.
        """
        ...

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Tell the source how far every sink has committed. Idempotent, never needed to be right.

        Raises:
            AcknowledgeFailed: It was not told.
        """
        ...


class Replayable(Protocol):
    """A source that takes records back which could not be decoded at first."""

    def replay(self, batch: str, letters: Any) -> tuple[str, ...]:
        """Append records, to be read as if they had just come.

        Args:
            batch: Names the records; the same batch is taken once.
            letters: An Arrow table as ``DecodedChunk.bad``, all of them whole.

        Returns:
            Where they stand now.

        Raises:
            AlreadyReplayed: The batch was taken before.
            InvalidConfig: Such records cannot be written back.
            SourceUnavailable: It cannot be reached.
        """
        ...


@runtime_checkable
class Observable(Protocol):
    """A source that can tell how it does."""

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        """Whether it answers, and how far the positions are behind what it holds.

        Changes nothing. A source that cannot be asked is an answer, not an exception.

        Args:
            positions: Where the next epoch begins; a partition without one is read from its start.
        """
        ...


@runtime_checkable
class Grouped(Protocol):
    """A source whose progress is kept where it is, under the name of a group."""

    def group_offsets(
        self, identity: SourceIdentity, positions: tuple[SourcePosition, ...]
    ) -> GroupOffsets | None:
        """What ``acknowledge`` would write down, for a sink that can do so with an epoch.

        Args:
            identity: What the epoch's plan has pinned.
            positions: Where the source goes on after the epoch.
        """
        ...


@runtime_checkable
class ReadByName(Protocol):
    """A source that is read by a name, under which something else may have come to stand."""

    def require_not_replaced(self, plan: SourcePlan) -> None:
        """Asked when all of a plan was read, before its output can win.

        What is gone by now was read all the same, and is no error.

        Raises:
            SourceReplaced: Something else has the name now, and may be what was read.
            SourceUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@runtime_checkable
class PinsItsEnd(Protocol):
    """A source whose identity says how far a plan reads it, and not only what it is."""

    def pin_held(self, plan: SourcePlan, previous: SourcePlan | None) -> SourcePlan:
        """A plan of which ranges were made empty since it was made, with what such a plan pins.

        Otherwise the pin would say of records that they were read which nobody has. A range that
        cannot be pinned at its start gets its end back.

        Args:
            plan: Its identity is still that of the ranges as they were.
            previous: The last epoch's plan.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """What a chunk took to read; see ``core.manifest.SourceReading``."""

    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0
    pauses: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedChunk:
    """Records of a split, decoded together.

    Attributes:
        rows: The good ones, in order, with the source's columns.
        bad: The others, in order: ``partition``, ``position``, ``raw``, ``reason``, and
            ``is_whole``, which is false where ``raw`` is only the record's beginning.
        records: How many there were, good and bad, of ``size_bytes`` in all.
        added: How many rows there are beyond one a record.
        skipped: How many records hold no row and are not bad.
        schema_ids: Of the registry's schemas by which they were decoded.
        set_aside: Some of ``rows`` by their places, with what is wrong with each, as ``bad`` has
            them: for whoever finds out only from the values that a record is bad. None where a row
            is a change of a table: without it, what the other changes add up to would be wrong.
    """

    rows: Any
    bad: Any
    records: int
    size_bytes: int
    added: int = 0
    skipped: int = 0
    schema_ids: frozenset[int] = frozenset()
    cost: ReadingCost = ReadingCost()
    set_aside: Callable[[Mapping[int, str]], Any] | None = field(
        default=None, compare=False, repr=False
    )


class SplitReader(Protocol):
    """Reads one split on an executor. Pickles; opens its own connection."""

    def read(self, split: SourceRange) -> Iterator[DecodedChunk]:
        """All records of the range, in order, in the same chunks on every machine.

        Raises:
            SourceUnavailable, RetentionExpired: as their names say.
        """
        ...

"""The source port: replayable streams, planned on the driver, read on the executors."""

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
        """Its address, as a URL without secrets: the same in every pipeline that uses it."""
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
        """What tells this source from another one at the same address."""
        ...

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut a planned range into consecutive pieces that can be read in parallel."""
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
        """Tell the source how far every sink has committed.

        Idempotent. Correctness never depends on it.

        Raises:
            AcknowledgeFailed: The source did not take it.
        """
        ...


class Replayable(Protocol):
    """A source to which dead letters can be appended again, to replay them."""

    def replay(self, batch: str, letters: Any) -> tuple[str, ...]:
        """Append records, to be read as if they had just come.

        Args:
            batch: An id of these records; the same batch is appended only once.
            letters: An Arrow table as ``DecodedChunk.bad``, all of them whole.

        Returns:
            The places of the appended records.

        Raises:
            AlreadyReplayed: The batch was appended before.
            InvalidConfig: Such records cannot be written back.
            SourceUnavailable: It cannot be reached.
        """
        ...


@runtime_checkable
class Observable(Protocol):
    """A source that can report its health."""

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        """Whether it answers, and how far the positions are behind what it holds.

        Changes nothing. A source that cannot be reached is reported, not raised.

        Args:
            positions: Where the next epoch begins; a partition without one is read from its start.
        """
        ...


@runtime_checkable
class Grouped(Protocol):
    """A source whose server stores progress under the name of a consumer group."""

    def group_offsets(
        self, identity: SourceIdentity, positions: tuple[SourcePosition, ...]
    ) -> GroupOffsets | None:
        """The offsets that ``acknowledge`` would store, for a sink that can commit them itself.

        Args:
            identity: The identity that the epoch's plan has pinned.
            positions: Where the source goes on after the epoch.
        """
        ...


@runtime_checkable
class ReadByName(Protocol):
    """A source that is read by a name, such as a topic's, which something else may take over."""

    def require_not_replaced(self, plan: SourcePlan) -> None:
        """Check after all of a plan was read, before the attempt can win.

        A source that has been deleted since is no error: it was there when it was read.

        Raises:
            SourceReplaced: Something else has the name now, and may have been read instead.
            SourceUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@runtime_checkable
class PinsItsEnd(Protocol):
    """A source whose pinned identity depends on where a plan's ranges end."""

    def pin_held(self, plan: SourcePlan, previous: SourcePlan | None) -> SourcePlan:
        """Pin the identity again for a plan some of whose ranges were made empty (alignment).

        Otherwise the identity would belong to records that the epoch does not read. A range that
        cannot be pinned at its start gets its end back.

        Args:
            plan: The plan, whose identity still belongs to the original ranges.
            previous: The last epoch's plan.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """Metrics of reading a chunk; see ``core.manifest.SourceReading``."""

    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0
    pauses: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedChunk:
    """Records of a split, decoded together.

    Attributes:
        rows: Rows of the good records, in order, with the source's columns.
        bad: The bad records, in order: ``partition``, ``position``, ``raw``, ``reason``, and
            ``is_whole``, which is false where ``raw`` is only the record's beginning.
        records: The number of records, good and bad, of ``size_bytes`` in all.
        added: The number of rows beyond one per record.
        skipped: The number of records that hold no row and are not bad.
        schema_ids: The registry's ids of the schemas they were decoded by.
        set_aside: Makes dead letters, as in ``bad``, of ``rows`` by their indexes and reasons: for
            checks of the decoded values. None for a changelog of a table: without one of its
            changes, the others would add up to wrong rows.
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

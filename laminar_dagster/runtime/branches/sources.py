"""Sources that are read, but never acknowledged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import SourceIdentity, SourcePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, Source, SplitReader


@dataclass(frozen=True, slots=True)
class ReadOnlySource:
    """A source of a branch, whose reads must not affect the pipeline that has the same source.

    It is not ``Grouped``, so no sink writes offsets of a group, and acknowledging it does nothing:
    the consumer group, or the replication slot, belongs to the pipeline.
    """

    inner: Source

    @property
    def source_id(self) -> SourceId:
        """See ``Source.source_id``."""
        return self.inner.source_id

    @property
    def address(self) -> str:
        """See ``Source.address``."""
        return self.inner.address

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """See ``Source.plan``."""
        return self.inner.plan(previous, start, limits, clock)

    def verify(self, plan: SourcePlan) -> None:
        """See ``Source.verify``."""
        self.inner.verify(plan)

    def identity(self) -> SourceIdentity:
        """See ``Source.identity``."""
        return self.inner.identity()

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """See ``Source.splits``."""
        return self.inner.splits(part)

    def reader(self) -> SplitReader:
        """See ``Source.reader``."""
        return self.inner.reader()

    def check_seek(self, position: SourcePosition) -> None:
        """See ``Source.check_seek``."""
        self.inner.check_seek(position)

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Do nothing."""

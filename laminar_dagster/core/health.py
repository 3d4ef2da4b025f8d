"""The health of a source: whether it answers, its lag, and what it may delete unread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from laminar_dagster.core.errors import LaminarError


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One partition of a source.

    Attributes:
        partition: Its name.
        lag: How many records wait in it.
        headroom: The share of what the partition holds that has been read. Retention deletes the
            oldest first, so at 0 it deletes unread records. None if it deletes nothing soon.
    """

    partition: str
    lag: int
    headroom: float | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of a source at one moment.

    Attributes:
        message: A summary in one line, for people.
        details: Further facts by name, without secrets.
        error: Why it could not be asked.
        warning: What is doubtful although it is healthy, and what to do.
    """

    healthy: bool
    message: str
    details: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[PartitionHealth, ...] = ()
    error: LaminarError | None = None
    warning: str = ""

    @classmethod
    def unreachable(
        cls, error: LaminarError, details: Mapping[str, str] | None = None
    ) -> HealthReport:
        """The report of a source that could not be asked."""
        return cls(False, str(error), details or {}, error=error)

    @property
    def total_lag(self) -> int | None:
        """The lag over all partitions; None when the source could not be asked."""
        is_unknown = self.error is not None and not self.partitions
        return None if is_unknown else sum(each.lag for each in self.partitions)

    @property
    def headroom(self) -> float | None:
        """The least headroom of any partition."""
        known = (each.headroom for each in self.partitions)
        return min((each for each in known if each is not None), default=None)

    def scarce(self, least: float) -> tuple[PartitionHealth, ...]:
        """The partitions that have less headroom than that."""
        return tuple(
            each for each in self.partitions if each.headroom is not None and each.headroom < least
        )

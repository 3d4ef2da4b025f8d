"""How a source does: whether it answers, how far behind it is, what it may lose unread."""

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
        headroom: Which share of what the partition holds has been read. It is deleted from that
            end: at 0, records go that were not read. None where none is about to.
    """

    partition: str
    lag: int
    headroom: float | None = None


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What a source says of itself, at one moment.

    Attributes:
        message: In a line, for people.
        details: What else is good to know, by name; no secret among it.
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
        """Of a source that could not be asked."""
        return cls(False, str(error), details or {}, error=error)

    @property
    def total_lag(self) -> int | None:
        """Over all partitions; None when it could not be asked."""
        is_unknown = self.error is not None and not self.partitions
        return None if is_unknown else sum(each.lag for each in self.partitions)

    @property
    def headroom(self) -> float | None:
        """Of the partition that has the least."""
        known = (each.headroom for each in self.partitions)
        return min((each for each in known if each is not None), default=None)

    def scarce(self, least: float) -> tuple[PartitionHealth, ...]:
        """The partitions that have less headroom than that."""
        return tuple(
            each for each in self.partitions if each.headroom is not None and each.headroom < least
        )

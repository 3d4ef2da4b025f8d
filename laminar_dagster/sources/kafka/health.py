"""How a Kafka source does: whether the brokers answer, how far it is behind, what may expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.health import HealthReport, PartitionHealth


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition.

    Attributes:
        position: The next offset to read; None before the first epoch.
        earliest: The first offset that is still there.
        end: The last stable offset.
    """

    topic: str
    partition: int
    position: int | None
    earliest: int
    end: int

    @property
    def lag(self) -> int:
        """How many offsets wait; what was deleted does not."""
        begin = self.earliest if self.position is None else max(self.position, self.earliest)
        return max(0, self.end - begin)

    @property
    def headroom(self) -> float | None:
        """Which share of what the partition holds has been read.

        Retention deletes from the other end: at 0 it deletes what was not read. None where
        nothing waits, and where nothing was ever deleted.
        """
        if self.position is None or self.lag <= 0 or not self.earliest:
            return None
        return max(0.0, (self.position - self.earliest) / (self.end - self.earliest))


def report(
    brokers: int,
    partitions: Sequence[PartitionLag],
    details: Mapping[str, str],
    problem: LaminarError | None = None,
) -> HealthReport:
    """Of a source whose cluster answered.

    Args:
        brokers: How many the cluster has.
        partitions: Of every topic.
        details: What is known of the source before anybody is asked.
        problem: What is wrong all the same.
    """
    lag = sum(each.lag for each in partitions)
    message = f"connected to {brokers} broker(s), lag {lag:,}"
    return HealthReport(
        healthy=problem is None,
        message=message if problem is None else f"{message}; {problem}",
        details={**details, "brokers": str(brokers)},
        partitions=tuple(
            PartitionHealth(f"{each.topic}/{each.partition}", each.lag, each.headroom)
            for each in partitions
        ),
        error=problem,
    )

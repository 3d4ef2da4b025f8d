"""Health of a Kafka source: whether brokers answer, its lag, and what retention may delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.health import HealthReport, PartitionHealth


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition.

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
        """How many offsets are unread; deleted ones do not count."""
        begin = self.earliest if self.position is None else max(self.position, self.earliest)
        return max(0, self.end - begin)

    @property
    def headroom(self) -> float | None:
        """The share of the partition's offsets that has been read.

        Retention deletes the oldest offsets: at 0 it deletes unread ones. None where nothing is
        unread, and where nothing was ever deleted.
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
    """The health of a source whose cluster answered.

    Args:
        brokers: How many brokers the cluster has.
        partitions: All partitions of all topics.
        details: What is known of the source without asking the cluster.
        problem: An error despite the answer.
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

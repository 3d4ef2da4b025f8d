"""What the screen shows: the figures of a moment, and how they came about."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from examples.kafka_orders.watch import Doing, positions, rows_out, seconds
from laminar_dagster.core.manifest import CheckpointManifest

_RATE_OVER: Final = 3.0


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """An epoch that is done.

    Attributes:
        seconds: From the start of the attempt to the point of commit.
        is_cold: Spark was started in it.
        lag: What waited when it was seen done.
    """

    epoch: int
    read: int
    late: int
    dead: int
    rows: int
    seconds: float
    is_cold: bool
    lag: int

    @property
    def per_second(self) -> float:
        """Records."""
        return self.read / self.seconds


@dataclass(frozen=True, slots=True)
class Sample:
    """What was produced and what waited, some seconds after the begin."""

    at: float
    produced: int
    lag: int


@dataclass(slots=True)
class Board:
    """All of it.

    Attributes:
        ends: The end of each partition.
        positions: Where the last epoch that is done has ended, by partition.
        doing_since: When it was first seen at that.
        is_starting: Whether the pipeline that runs has done no epoch yet.
        watermark: Of the last epoch, in microseconds.
        rows: In SQLite.
        news: What happened, with the second.
    """

    begun: float = field(default_factory=time.monotonic)
    ends: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    epochs: list[EpochFigures] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    doing: Doing | None = None
    doing_since: float = 0.0
    is_starting: bool = True
    watermark: int | None = None
    rows: int = 0
    news: list[tuple[float, str]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self.begun

    @property
    def produced(self) -> int:
        """Records in the topic."""
        return sum(self.ends.values())

    @property
    def lag(self) -> int:
        """Records that wait."""
        return sum(map(self.lag_of, self.ends))

    @property
    def late(self) -> int:
        """Records that came too late, in all epochs."""
        return sum(each.late for each in self.epochs)

    @property
    def dead(self) -> int:
        """Records that could not be read, in all epochs."""
        return sum(each.dead for each in self.epochs)

    @property
    def peak(self) -> int:
        """The largest lag that was seen."""
        return max((each.lag for each in self.samples), default=0)

    @property
    def behind(self) -> float | None:
        """How many seconds the watermark is behind the clock; less than 0 if it is ahead."""
        return None if self.watermark is None else time.time() - self.watermark / 1e6

    @property
    def produced_per_second(self) -> float:
        """In the last seconds."""
        if not self.samples:
            return 0.0
        last = self.samples[-1]
        first = next(each for each in self.samples if each.at >= last.at - _RATE_OVER)
        passed = last.at - first.at
        return (last.produced - first.produced) / passed if passed > 0 else 0.0

    def lag_of(self, partition: int) -> int:
        """Records of a partition that wait."""
        return max(0, self.ends[partition] - self.positions.get(partition, 0))

    def is_doing(self, doing: Doing | None) -> None:
        """What the pipeline does now; None when there is none."""
        if doing != self.doing:
            self.doing, self.doing_since = doing, self.now

    def measured(self, ends: Mapping[int, int]) -> None:
        """The topic was looked at."""
        self.ends = dict(ends)
        self.samples.append(Sample(self.now, self.produced, self.lag))

    def finished(self, manifest: CheckpointManifest, rows: int) -> EpochFigures:
        """An epoch is done; ``rows`` are in SQLite now."""
        self.positions = positions(manifest)
        self.watermark = manifest.watermark
        self.rows = rows
        figures = EpochFigures(
            epoch=int(manifest.epoch),
            read=manifest.counts.read,
            late=manifest.counts.late,
            dead=manifest.counts.dead_lettered,
            rows=rows_out(manifest),
            seconds=seconds(manifest),
            is_cold=self.is_starting,
            lag=self.lag,
        )
        self.epochs.append(figures)
        self.is_starting = False
        return figures

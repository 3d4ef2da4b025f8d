"""How far event time has come, partition by partition and for a source as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lane:
    """A partition of a source before the epoch; ``is_idle`` as the plan says."""

    part: int
    watermark: int | None
    is_idle: bool


@dataclass(frozen=True, slots=True)
class SourceClock:
    """A source's watermarks before the epoch."""

    source_id: str
    watermark: int | None
    lanes: tuple[Lane, ...]

    def lane_watermarks(self, seen: Mapping[int, int | None]) -> tuple[int | None, ...]:
        """Of each partition after the epoch, given what its tasks saw."""
        return tuple(latest((lane.watermark, seen.get(lane.part))) for lane in self.lanes)

    def advance(self, seen: Mapping[int, int | None]) -> int | None:
        """Of the source after the epoch: the smallest of those that are not idle.

        A partition that is not idle and has had no event yet holds the source back. The watermark
        never runs backwards, also when an idle partition comes back.
        """
        active = [
            watermark
            for lane, watermark in zip(self.lanes, self.lane_watermarks(seen), strict=True)
            if not lane.is_idle
        ]
        if not active:
            return self.watermark
        return latest((self.watermark, earliest(active)))


def earliest(watermarks: Iterable[int | None]) -> int | None:
    """The smallest; None, which is before everything, if there is one."""
    found = list(watermarks)
    if not found or any(each is None for each in found):
        return None
    return min(each for each in found if each is not None)


def latest(watermarks: Iterable[int | None]) -> int | None:
    """The largest; None only if there is nothing else."""
    return max((each for each in watermarks if each is not None), default=None)

"""Watermarks: of each partition, and of a source as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lane:
    """The watermark of a source's partition before the epoch; ``is_idle`` comes from the plan."""

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
        """The watermark of each partition after the epoch, given the watermarks its tasks saw."""
        return tuple(latest((lane.watermark, seen.get(lane.part))) for lane in self.lanes)

    def advance(self, seen: Mapping[int, int | None]) -> int | None:
        """The source's watermark after the epoch: the smallest of its partitions, idle ones aside.

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
    """The smallest watermark; None (no event yet) if any is None or there are none."""
    found = list(watermarks)
    if not found or any(each is None for each in found):
        return None
    return min(each for each in found if each is not None)


def latest(watermarks: Iterable[int | None]) -> int | None:
    """The largest watermark, leaving out None; None if no other value is left."""
    return max((each for each in watermarks if each is not None), default=None)

"""Which records are late: a property of the record, not of where the epochs were cut.

A record is late when, before it, its own partition had already seen an event more than the
watermark's delay newer. That depends on the order within the partition alone, so any cut of the
stream into epochs judges it the same way. (A partition that was idle and comes back is also judged
by the source's watermark, which advanced without it; the plan records which were idle.)

A record whose event time is further ahead of the plan's clock than the plan allows is not trusted:
it moves no watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.config.units import spell_duration
from laminar_dagster.core.document import spell_microseconds

_LOWEST: Final = np.iinfo(np.int64).min
_HIGHEST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class AheadBound:
    """How far event time may be ahead of the epoch's clock; both are pinned in the plan.

    Attributes:
        clock: The epoch's clock, in microseconds since 1970.
        most: How far ahead event time may be, in microseconds.
    """

    clock: int
    most: int

    @property
    def latest(self) -> int:
        """The last event time that is not too far ahead, in microseconds since 1970."""
        return min(self.clock + self.most, _HIGHEST)

    def problem(self, time: int) -> str:
        """An error message for a record whose event time is too far ahead."""
        most = f"`{MAX_AHEAD}` = '{spell_duration(self.most)}'"
        return (
            f"event time {spell_microseconds(time)} is further ahead of the epoch's clock, "
            f"{spell_microseconds(self.clock)}, than {most} allows"
        )


@dataclass
class LatenessJudge:
    """Judges the records of one partition, in order.

    Attributes:
        column: The column of the event time.
        delay: How far behind the newest event a record may be, in microseconds.
        watermark: The partition's watermark, in microseconds; None before its first event.
        floor: The source's watermark at the start of the epoch.
        bound: How far ahead event time may be; None where the plan sets no bound.
    """

    column: str
    delay: int
    watermark: int | None
    floor: int | None
    bound: AheadBound | None = None

    def times_ahead(self, rows: pa.RecordBatch) -> dict[int, int]:
        """The event times that are too far ahead, by row index."""
        if self.bound is None or not rows.num_rows:
            return {}
        times = self._times(rows)
        places = np.flatnonzero(times > self.bound.latest)
        return dict(zip(places.tolist(), times[places].tolist(), strict=True))

    def lateness(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """How late each row is (0: on time), in microseconds; also advances the watermark."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        times = self._times(rows)
        before = _LOWEST if self.watermark is None else self.watermark
        reached = times - self.delay
        if self.bound is not None:
            reached[times > self.bound.latest] = _LOWEST
        # The watermark before each record: the maximum over the records before it.
        marks = np.maximum.accumulate(np.concatenate(([before], reached)))
        self.watermark = None if marks[-1] == _LOWEST else int(marks[-1])
        needed = marks[:-1] if self.floor is None else np.maximum(marks[:-1], self.floor)
        # Only where late: before the first event the difference would overflow.
        is_late = times < needed
        late: npt.NDArray[np.int64] = np.subtract(
            needed, times, out=np.zeros(len(times), np.int64), where=is_late
        )
        return late

    def _times(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        times: npt.NDArray[np.int64] = pc.cast(rows.column(self.column), pa.int64()).to_numpy(
            zero_copy_only=False
        )
        return times

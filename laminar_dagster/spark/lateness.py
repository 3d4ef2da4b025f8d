"""Which records are late: a property of the record, not of where the epochs were cut.

A record is late when, before it, its own partition had already seen an event more than the
watermark's delay newer. That depends on the order within the partition alone, so any cut of the
stream into epochs judges it the same way. (A partition that was idle and comes back is also judged
by the source's watermark, which has gone on without it; the plan records which were idle.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass
class LatenessJudge:
    """Judges the records of one partition, in order.

    Attributes:
        column: Of the event time.
        delay: How far behind the newest event a record may be, in microseconds.
        watermark: Of the partition, in microseconds; None before its first event.
        floor: The source's watermark at the start of the epoch.
    """

    column: str
    delay: int
    watermark: int | None
    floor: int | None

    def lateness(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """How late each of the rows is, 0 if it is on time; moves the watermark past them."""
        times = pc.cast(rows.column(self.column), pa.int64()).to_numpy(zero_copy_only=False)
        if not len(times):
            return np.empty(0, np.int64)
        lowest = np.iinfo(np.int64).min
        before = lowest if self.watermark is None else self.watermark
        # The watermark before each record: of everything that stands before it.
        marks = np.maximum.accumulate(np.concatenate(([before], times - self.delay)))
        self.watermark = int(marks[-1])
        needed = marks[:-1] if self.floor is None else np.maximum(marks[:-1], self.floor)
        # Before the first event nothing is late; the difference would not fit.
        is_late = times < needed
        late: npt.NDArray[np.int64] = np.subtract(
            needed, times, out=np.zeros(len(times), np.int64), where=is_late
        )
        return late

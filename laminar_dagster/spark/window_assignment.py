"""Assigns records to windows of event time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_dagster.spark.columns import END, TIME


@dataclass(frozen=True, slots=True)
class WindowAssignment:
    """Windows of one size that begin every ``slide``; a window is identified by its end.

    Attributes:
        grows: Windows begin every ``size`` and end every ``slide`` until then (CUMULATE).
        offset: By how much their edges are shifted.
    """

    size: int
    slide: int
    offset: int = 0
    grows: bool = False

    def assign(self, rows: pa.Table) -> pa.Table:
        """Each row once for every window it is in, in the order of the rows, with ``_end``."""
        times = rows.column(TIME).to_numpy() - self.offset
        # The earliest window end after each time; later ends follow every `slide`.
        first = np.floor_divide(times, self.slide) * self.slide + self.slide
        if self.size == self.slide:
            return rows.append_column(END, pa.array(first + self.offset))
        if self.grows:
            last = np.floor_divide(times, self.size) * self.size + self.size
            copies = (last - first) // self.slide + 1
        else:
            copies = np.full(len(times), self.size // self.slide, np.int64)
        begins = np.cumsum(copies) - copies
        number = np.arange(int(copies.sum())) - np.repeat(begins, copies)
        ends = np.repeat(first, copies) + number * self.slide + self.offset
        places = np.repeat(np.arange(len(times)), copies)
        return rows.take(pa.array(places)).append_column(END, pa.array(ends))

    def start_sql(self, end: str) -> str:
        """The start of a window, in microseconds, as Spark SQL over its end."""
        if not self.grows:
            return f"({end} - {self.size})"
        # From the window's last microsecond: its end may already be the start of the next one.
        return f"({end} - 1 - pmod({end} - 1 - {self.offset}, {self.size}))"

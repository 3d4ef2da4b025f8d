"""Partials made where records are read, for windows that need nothing of Spark for that.

A window over a source whose time, keys and arguments are plain columns, and whose filter Arrow can
evaluate as Spark would, is aggregated by the task that decodes the records. Then only the partials
go to Spark, not the records to Spark and back: about a hundredth of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.columns import CONTROL, EARLY, END, PART, SEQUENCE, TIME
from laminar_dagster.spark.partial_step import ROWS_AT_ONCE, WindowPartials, count_records

# From records to booleans; null is neither true nor false.
Predicate = Callable[[Any], Any]


@dataclass(frozen=True)
class EarlyWindow:
    """What a task needs to aggregate the records of a source for one operator.

    Attributes:
        columns: Those of the source, by the names under which the window knows them.
        keep: The filter; None keeps everything.
    """

    partials: WindowPartials
    columns: Mapping[str, str]
    keep: Predicate | None


@dataclass
class EarlyAggregator:
    """Aggregates the records of one split for one operator, as they come."""

    window: EarlyWindow
    part: int
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _sequence: int = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        """Take records; when enough have come, hand out their count and their partials."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= ROWS_AT_ONCE:
            yield from self.finish()

    def finish(self) -> Iterator[tuple[str, pa.Table]]:
        """The count and the partials of what is waiting."""
        if not self._waiting:
            return
        partials = self.window.partials
        records = pa.Table.from_batches(self._waiting)
        kept = pa.chunked_array([np.ones(records.num_rows, np.bool_)])
        if self.window.keep:
            kept = pc.fill_null(self.window.keep(records), False)
            records = records.filter(kept)
        tally = count_records(partials.shape.operator, self.part, self._sequence, kept)
        yield tally, partials.aggregate(self._renamed(records), self.part, self._sequence)
        self._waiting, self._rows = [], 0
        self._sequence += 1

    def _renamed(self, records: pa.Table) -> pa.Table:
        columns = {name: records.column(of) for name, of in self.window.columns.items()}
        return pa.table({**columns, TIME: columns[TIME].cast(pa.int64())})


# --- partials among the rows of a scan ----------------------------------------------------------

_SHARED: Final = (PART, SEQUENCE, CONTROL, END)


def early_fields(windows: Sequence[EarlyWindow]) -> list[pa.Field]:
    """The columns of a scan that carry partials; none if it makes none."""
    if not windows:
        return []
    fields = [(EARLY, pa.int32()), (SEQUENCE, pa.int64()), (END, pa.int64())]
    fields += [
        (carrier(number, each.name), each.type)
        for number, window in enumerate(windows)
        for each in window.partials.schema
        if each.name not in _SHARED
    ]
    return [pa.field(*each) for each in fields]


def early_rows(number: int, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Partials of a window as rows of a scan."""
    count = table.num_rows
    found = {carrier(number, name): table.column(name) for name in table.column_names}
    found[EARLY] = pa.array(np.full(count, number, np.int32))
    columns = [found.get(each.name, pa.nulls(count, each.type)) for each in schema]
    yield from pa.table(columns, schema=schema).to_batches()


def carrier(number: int, column: str) -> str:
    """The column of a scan that carries a column of a window's partials."""
    if column in _SHARED:
        return column
    return f"{EARLY}{number}_{column}"

"""Pre-aggregation in the scan, for operators that need no expression of Spark for it.

An aggregation or ranking over a source whose time, keys and arguments are plain columns, and whose
filter Arrow can evaluate as Spark would, is aggregated by the task that decodes the records. Then
only partials go to Spark, not records to Spark and back: for windows about 1 % of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.columns import CONTROL, EARLY, END, LATE, PART, SEQUENCE, TIME
from laminar_dagster.spark.keyed_partials import KeyedPartials
from laminar_dagster.spark.partial_step import ROWS_AT_ONCE, WindowPartials, count_records

# A filter: from records to a mask, null where SQL's answer is NULL.
Predicate = Callable[[Any], Any]


@dataclass(frozen=True)
class EarlyOperator:
    """What a task needs to aggregate the records of a source for one operator.

    Attributes:
        columns: The operator's name of each column, with the source's name of it.
        keep: The filter; None keeps everything.
        lateness: How late records may be, in microseconds, if the scan hands on late ones.
    """

    partials: WindowPartials | KeyedPartials
    columns: Mapping[str, str]
    keep: Predicate | None
    lateness: int = 0


@dataclass
class EarlyAggregator:
    """Aggregates the records of one split for one operator, as they are read."""

    operator: EarlyOperator
    part: int
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _sequence: int = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
        """Buffer records; once there are enough, yield their count and their partials."""
        # Cut where PartialStep would: the order of additions changes sums of floats.
        while self._rows + rows.num_rows >= ROWS_AT_ONCE:
            room = ROWS_AT_ONCE - self._rows
            self._wait(rows.slice(0, room))
            yield from self.finish()
            rows = rows.slice(room)
        if rows.num_rows:
            self._wait(rows)

    def finish(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the count and the partials of the buffered records."""
        if not self._waiting:
            return
        partials = self.operator.partials
        records = pa.Table.from_batches(self._waiting)
        kept = pa.chunked_array([np.ones(records.num_rows, np.bool_)])
        if self.operator.keep:
            kept = pc.fill_null(self.operator.keep(records), False)
        if LATE in records.column_names:
            kept = pc.and_(kept, pc.less_equal(records.column(LATE), self.operator.lateness))
        if self.operator.keep or LATE in records.column_names:
            records = records.filter(kept)
        tally = count_records(partials.shape.operator, self.part, self._sequence, kept)
        yield tally, partials.aggregate(self._renamed(records), self.part, self._sequence)
        self._waiting, self._rows = [], 0
        self._sequence += 1

    def _wait(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows

    def _renamed(self, records: pa.Table) -> pa.Table:
        names = list(self.operator.columns)
        found = records.select(list(self.operator.columns.values())).rename_columns(names)
        if TIME not in names:
            return found
        times = found.column(TIME).cast(pa.int64())
        return found.set_column(names.index(TIME), TIME, times)


# --- partials among the rows of a scan ----------------------------------------------------------

_SHARED: Final = (PART, SEQUENCE, CONTROL, END)


def early_fields(operators: Sequence[EarlyOperator]) -> list[pa.Field]:
    """The columns of a scan that carry partials; none if it makes no partials."""
    if not operators:
        return []
    fields = [(EARLY, pa.int32()), (SEQUENCE, pa.int64()), (END, pa.int64())]
    fields += [
        (carrier(number, each.name), each.type)
        for number, operator in enumerate(operators)
        for each in operator.partials.schema
        if each.name not in _SHARED
    ]
    return [pa.field(*each) for each in fields]


def early_rows(number: int, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Partials of an operator as rows of a scan."""
    count = table.num_rows
    found = {carrier(number, name): table.column(name) for name in table.column_names}
    found[EARLY] = pa.array(np.full(count, number, np.int32))
    columns = [found.get(each.name, pa.nulls(count, each.type)) for each in schema]
    yield from pa.table(columns, schema=schema).to_batches()


def carrier(number: int, column: str) -> str:
    """The column of a scan that carries a column of an operator's partials."""
    if column in _SHARED:
        return column
    return f"{EARLY}{number}_{column}"

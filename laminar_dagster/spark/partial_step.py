"""Pre-aggregates records into partials: one row for each window and key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.aggregates import PartialColumn, first_partials
from laminar_dagster.spark.columns import CONTROL, KEEP, PART, SEQUENCE
from laminar_dagster.spark.growth import beginning
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.weighing import weighed
from laminar_dagster.spark.window_assignment import WindowAssignment

ROWS_AT_ONCE: Final = 500_000


class RecordPartials(Protocol):
    """Pre-aggregates records into partials."""

    @property
    def shape(self) -> StateShape | KeyedShape | JoinShape:
        """The shape of the state that the partials are for."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Output schema of a step: part, sequence and reports, then the partials' columns."""
        ...

    def aggregate(self, records: pa.Table, part: int, sequence: int) -> pa.Table:
        """Aggregate records with keys and arguments into rows of ``schema``."""
        ...


@dataclass(frozen=True)
class WindowPartials:
    """Assigns records to windows, and aggregates those of one window and key."""

    shape: StateShape
    windows: WindowAssignment

    @property
    def schema(self) -> pa.Schema:
        """Output schema of a step: part, sequence and reports, then the partials' columns."""
        own = [(PART, pa.int64()), (SEQUENCE, pa.int64()), (CONTROL, pa.string())]
        return pa.schema([*own, *self.shape.schema])

    def aggregate(self, records: pa.Table, part: int, sequence: int) -> pa.Table:
        """Aggregate records with ``_time``, keys and arguments into rows of ``schema``.

        Raises:
            ComputeFailed: A weight is neither 1 nor -1, or a sum does not fit.
        """
        windowed = self.windows.assign(records)
        columns: Sequence[PartialColumn] = self.shape.columns
        if self.shape.weight is not None:
            windowed, columns = weighed(windowed, columns, self.shape.operator)
        found = first_partials(windowed, self.shape.group, columns, self.shape.operator)
        count = found.num_rows
        own = {
            PART: pa.array(np.full(count, part, np.int64)),
            SEQUENCE: pa.array(np.full(count, sequence, np.int64)),
            CONTROL: pa.nulls(count, pa.string()),
            **beginning(self.shape.growth, count),
        }
        columns = [own[name] if name in own else found.column(name) for name in self.schema.names]
        return pa.table(columns, names=self.schema.names).cast(self.schema)


@dataclass(frozen=True)
class PartialStep:
    """Makes partials of records that Spark has projected and filtered: for ``mapInArrow``.

    Input: ``_part``, ``_control``, ``_keep``, ``_time``, keys and arguments. Control rows are
    passed on, and kept and dropped records are counted.

    Attributes:
        counts: False if the input is results of another operator, not records.
    """

    partials: RecordPartials
    counts: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Aggregate about ``ROWS_AT_ONCE`` rows at a time, to bound memory."""
        waiting: list[pa.RecordBatch] = []
        rows = sequence = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROWS_AT_ONCE:
                yield from self._aggregate(waiting, sequence)
                waiting, rows = [], 0
                sequence += 1
        if waiting:
            yield from self._aggregate(waiting, sequence)

    def _aggregate(self, batches: list[pa.RecordBatch], sequence: int) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        is_record = pc.is_null(table.column(CONTROL))
        controls = table.column(CONTROL).drop_null().to_pylist()
        records = table.filter(is_record) if controls else table
        keep = pc.fill_null(records.column(KEEP), False)
        part = table.column(PART)[0].as_py()
        operator = self.partials.shape.operator
        if self.counts:
            controls.append(count_records(operator, part, sequence, keep))
        yield control_rows(controls, part, self.partials.schema)
        kept = records if pc.all(keep, min_count=0).as_py() else records.filter(keep)
        if kept.num_rows:
            yield from self.partials.aggregate(kept, part, sequence).to_batches()


def control_rows(texts: list[str], part: int, schema: pa.Schema) -> pa.RecordBatch:
    """Reports as rows of a frame: all other columns are null."""
    own = {
        CONTROL: pa.array(texts, pa.string()),
        PART: pa.array(np.full(len(texts), part, np.int64)),
    }
    columns = [own.get(each.name, pa.nulls(len(texts), each.type)) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def count_records(operator: str, part: int, sequence: int, keep: pa.ChunkedArray) -> str:
    """A report of how many records an operator took and dropped, to check the reader's count."""
    processed = pc.sum(keep).as_py() or 0
    return json.dumps(
        {
            "operator": operator,
            "part": part,
            "sequence": sequence,
            "processed": processed,
            "filtered": len(keep) - processed,
        }
    )

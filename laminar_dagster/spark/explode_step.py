"""Explodes rows, one for every item of a list, on the executors: for ``mapInArrow``.

Rows stay in their partition, and rows and items in their order. Spark's own explode would drop a
record without items before it was counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.partial_step import control_rows, count_records

# The list (or entries of a map) to explode. The step drops this column.
ITEMS: Final = "_items"


@dataclass(frozen=True)
class ExplodeStep:
    """Explodes rows.

    Input: ``_part``, ``_control``, ``_keep``, columns, and ``_items``.

    Attributes:
        operator: The operator that records are counted for; None where the rows are no records.
        keeps_empty: A row without items stays, with nulls in their place.
        places: The columns that hold the position of an item, from 0.
        items: The columns that hold the item itself.
        fields: The columns that hold a field of the item, with the field's index.
        schema: The output schema.
    """

    operator: str | None
    keeps_empty: bool
    places: tuple[str, ...]
    items: tuple[str, ...]
    fields: tuple[tuple[str, int], ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Explode live rows; pass reports on."""
        for sequence, batch in enumerate(batches):
            if batch.num_rows:
                yield from self._exploded(pa.Table.from_batches([batch]), sequence)

    def _exploded(self, table: pa.Table, sequence: int) -> Iterator[pa.RecordBatch]:
        part = table.column(PART)[0].as_py()
        controls = table.column(CONTROL).drop_null().to_pylist()
        records = table.filter(pc.is_null(table.column(CONTROL))) if controls else table
        keep = pc.fill_null(records.column(KEEP), False).to_numpy()
        lists = records.column(ITEMS).combine_chunks()
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        stays = keep if self.keeps_empty else keep & (counts > 0)
        if self.operator is not None:
            told = count_records(self.operator, part, sequence, pa.chunked_array([stays]))
            controls.append(told)
        if controls:
            yield control_rows(controls, part, self.schema)
        if stays.any():
            rows = np.flatnonzero(stays)
            yield from self._rows(records, rows, lists, counts).to_batches()

    def _rows(
        self, records: pa.Table, rows: np.ndarray, lists: pa.Array, counts: np.ndarray
    ) -> pa.Table:
        """The output rows of some input rows, in their order."""
        held = counts[rows].astype(np.int64)
        made = np.maximum(held, 1)
        # Offsets of each list: among the output rows (`begin`), then among the items (`wanted`).
        begin = np.repeat(np.cumsum(made) - made, made)
        place = np.arange(len(begin), dtype=np.int64) - begin
        is_empty = np.repeat(held == 0, made)
        wanted = pa.array(np.repeat(np.cumsum(held) - held, made) + place, mask=is_empty)
        items = pc.list_flatten(lists.take(pa.array(rows))).take(wanted)
        mine = records.take(pa.array(np.repeat(rows, made)))
        found = {
            **{name: pa.array(place, mask=is_empty) for name in self.places},
            **dict.fromkeys(self.items, items),
            **{name: pc.struct_field(items, [field]) for name, field in self.fields},
        }
        columns = [
            found[each.name] if each.name in found else mine.column(each.name)
            for each in self.schema
        ]
        return pa.table(columns, names=self.schema.names).cast(self.schema)

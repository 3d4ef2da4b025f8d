"""The row layout of a join's state: rows of both sides that may still find a partner.

A row is never changed. A retraction is a row of weight -1 beside it; both are dropped when files
are compacted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.arrow_files import schema_fingerprint
from laminar_dagster.spark.columns import END, HASH, SIDE, TIME
from laminar_dagster.spark.growth import METADATA
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.row_order import differs_from_previous, sorted_by
from laminar_dagster.spark.state_shape import KeyColumn, cast_rows

JOIN: Final = "join"
LEFT: Final = 0
RIGHT: Final = 1


@dataclass(frozen=True, slots=True)
class KeptColumn:
    """A column of one side that is kept, or one that is compared between both sides."""

    name: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class JoinShape:
    """Hash, end, side, time, weight, keys, operands, and the columns of either side.

    Attributes:
        keys: The columns that must be equal; both sides store them in the same columns.
        operands: Other columns that the join condition compares, stored likewise.
        columns: The columns of the left and the right; null in rows of the other side.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    operands: tuple[KeptColumn, ...]
    columns: tuple[KeptColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """The schema of a state file."""
        own = [(HASH, pa.int64()), (END, pa.int64()), (SIDE, pa.int8()), (TIME, pa.int64())]
        kept = [(each.name, each.arrow_type) for each in (*self.operands, *self.columns)]
        keys = [(key.name, key.arrow_type) for key in self.keys]
        about = {
            "operator": self.operator,
            "kind": JOIN,
            "keys": {key.name: key.sql for key in self.keys},
            "operands": [each.name for each in self.operands],
        }
        fields = [*own, (WEIGHT, pa.int64()), *keys, *kept]
        return pa.schema(fields, {METADATA: json.dumps(about, ensure_ascii=False)})

    @classmethod
    def of_file(cls, schema: pa.Schema) -> JoinShape:
        """Read the shape that a file was written with from its schema."""
        about: dict[str, Any] = json.loads(schema.metadata[METADATA])
        known = {HASH, END, SIDE, TIME, WEIGHT, *about["keys"], *about["operands"]}
        return cls(
            OperatorId(about["operator"]),
            tuple(
                KeyColumn(name, sql, schema.field(name).type) for name, sql in about["keys"].items()
            ),
            tuple(KeptColumn(name, schema.field(name).type) for name in about["operands"]),
            tuple(KeptColumn(each.name, each.type) for each in schema if each.name not in known),
        )

    @property
    def group(self) -> tuple[str, ...]:
        """The columns by which rows are sorted and distinguished; nested types come last."""
        kept: list[KeyColumn | KeptColumn] = [*self.keys, *self.operands, *self.columns]
        kept.sort(key=lambda each: bool(pa.types.is_nested(each.arrow_type)))
        return (SIDE, END, TIME, *(each.name for each in kept))

    @property
    def fingerprint(self) -> str:
        """A hash of the names and types of the columns."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Convert stored rows to this shape: removes and widens columns after schema evolution.

        Raises:
            ValueError: The rows cannot be converted.
        """
        return cast_rows(table, self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end among rows; None if no row has an end."""
        found = pc.min_max(rows.column(END)).as_py()
        return None if found["min"] is None else (found["min"], found["max"])

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge rows of several tables, sorted as in a file; rows of net weight 0 are dropped."""
        found = [part.select(self.schema.names).cast(self.schema) for part in parts]
        rows = self.sorted(pa.concat_tables([self.schema.empty_table(), *found]))
        if not rows.num_rows:
            return rows
        begins = differs_from_previous(rows, [name for name in rows.column_names if name != WEIGHT])
        weights = np.add.reduceat(rows.column(WEIGHT).to_numpy(), np.flatnonzero(begins))
        place = rows.column_names.index(WEIGHT)
        merged = rows.filter(pa.array(begins)).set_column(place, WEIGHT, pa.array(weights))
        return self.alive(merged)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of a file."""
        return sorted_by(rows, (HASH, *self.group))

    def alive(self, rows: pa.Table) -> pa.Table:
        """Rows without those whose weight is 0: inserted and retracted."""
        return rows.filter(pc.not_equal(rows.column(WEIGHT), 0))

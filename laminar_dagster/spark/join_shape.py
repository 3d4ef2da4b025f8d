"""What the rows of a join's state look like: those of both sides that may still find a partner.

A row is never changed. One that is taken back is a row of weight -1 beside it; both go when files
are folded.
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
    """A column that is kept of one side, or compared between both."""

    name: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class JoinShape:
    """Hash, end, side, time, weight, keys, operands, and the columns of either side.

    Attributes:
        keys: What has to be equal; the left and the right have them in the same column.
        operands: What is compared, likewise.
        columns: Of the left and the right; those of the other side are null.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    operands: tuple[KeptColumn, ...]
    columns: tuple[KeptColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of a file of state."""
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
        """The shape that a file was written with."""
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
        """By what rows are put in order and told apart; what has no order comes last."""
        kept: list[KeyColumn | KeptColumn] = [*self.keys, *self.operands, *self.columns]
        kept.sort(key=lambda each: bool(pa.types.is_nested(each.arrow_type)))
        return (SIDE, END, TIME, *(each.name for each in kept))

    @property
    def fingerprint(self) -> str:
        """Changes when a column's name or type does."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Stored rows as rows of this shape: columns left out, and widened, where it changed.

        Raises:
            ValueError: They cannot be read so.
        """
        return cast_rows(table, self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end among rows; None if they have none."""
        found = pc.min_max(rows.column(END)).as_py()
        return None if found["min"] is None else (found["min"], found["max"])

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Rows of several origins in the order of a file; what was taken back is gone."""
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
        """Rows without those that were taken back."""
        return rows.filter(pc.not_equal(rows.column(WEIGHT), 0))

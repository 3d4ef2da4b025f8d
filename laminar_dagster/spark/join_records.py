"""Converts records of one side of a join to rows of its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.spark.columns import CONTROL, END, HASH, PART, SEQUENCE, SIDE
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.join_step import Terms
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.window_assignment import WindowAssignment

# False: the record's own columns already rule out any match.
FITS: Final = "_fits"


@dataclass(frozen=True)
class JoinRecords:
    """Sets the end up to which a record waits for partners; the other side's columns are null.

    Attributes:
        side: 0 for the left, 1 for the right.
        windows: Assigns records to windows; None where the join has none.
    """

    shape: JoinShape
    terms: Terms
    side: int
    windows: WindowAssignment | None = None

    @property
    def schema(self) -> pa.Schema:
        """Output schema of a step: part, sequence and reports, then state columns without hash."""
        own = [(PART, pa.int64()), (SEQUENCE, pa.int64()), (CONTROL, pa.string())]
        return pa.schema([*own, *(each for each in self.shape.schema if each.name != HASH)])

    def aggregate(self, records: pa.Table, part: int, sequence: int) -> pa.Table:
        """Convert records with keys, operands, columns and time to rows of ``schema``.

        Raises:
            ComputeFailed: A weight is neither 1 nor -1.
        """
        if self.windows:
            records = self.windows.assign(records)
        else:
            records = records.append_column(END, self.terms.ends(records, self.side))
        count = records.num_rows
        made: dict[str, Any] = {
            PART: pa.array(np.full(count, part, np.int64)),
            SEQUENCE: pa.array(np.full(count, sequence, np.int64)),
            SIDE: pa.array(np.full(count, self.side, np.int8)),
            WEIGHT: self._weights(records),
        }
        if FITS in records.column_names:
            fits = pc.fill_null(records.column(FITS), False)
            for key in self.shape.keys:
                nothing = pa.scalar(None, key.arrow_type)
                value = records.column(key.name).cast(key.arrow_type)
                made[key.name] = pc.if_else(fits, value, nothing)
        found = [
            made[each.name]
            if each.name in made
            else records.column(each.name)
            if each.name in records.column_names
            else pa.nulls(count, each.type)
            for each in self.schema
        ]
        return pa.table(found, names=self.schema.names).cast(self.schema)

    def _weights(self, records: pa.Table) -> Any:
        if WEIGHT not in records.column_names:
            return pa.array(np.ones(records.num_rows, np.int64))
        weights = records.column(WEIGHT).cast(pa.int64())
        known = pc.is_in(weights, value_set=pa.array([1, -1], pa.int64()))
        if not pc.all(known, min_count=0).as_py():
            problem = f"`{WEIGHT}` has to be 1 or -1 in every row"
            raise ComputeFailed(self.shape.operator, problem)
        return weights

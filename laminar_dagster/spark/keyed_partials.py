"""Pre-aggregates records into keyed state rows: one for each key, window or session of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_dagster.spark.columns import CONTROL, HASH, PART, SEQUENCE
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.window_assignment import WindowAssignment


@dataclass(frozen=True)
class KeyedPartials:
    """Aggregates the records of each key.

    Attributes:
        windows: Assigns records to windows; None where the operator has none.
    """

    shape: KeyedShape
    windows: WindowAssignment | None = None

    @property
    def schema(self) -> pa.Schema:
        """Output schema of a step: part, sequence and reports, then state columns without hash."""
        own = [(PART, pa.int64()), (SEQUENCE, pa.int64()), (CONTROL, pa.string())]
        return pa.schema([*own, *(each for each in self.shape.schema if each.name != HASH)])

    def aggregate(self, records: pa.Table, part: int, sequence: int) -> pa.Table:
        """Aggregate records (keys, arguments, and times or weight if any) into rows of ``schema``.

        Raises:
            ComputeFailed: A weight is neither 1 nor -1, or a sum does not fit.
        """
        columns = self.shape.columns
        if self.windows:
            records = self.windows.assign(records)
        if self.shape.weight is not None:
            records, columns = self.shape.weighed(records, columns)
        found = self.shape.first_rows(records, columns)
        count = found.num_rows
        own = {
            PART: pa.array(np.full(count, part, np.int64)),
            SEQUENCE: pa.array(np.full(count, sequence, np.int64)),
            CONTROL: pa.nulls(count, pa.string()),
        }
        every = [own[name] if name in own else found.column(name) for name in self.schema.names]
        return pa.table(every, names=self.schema.names).cast(self.schema)

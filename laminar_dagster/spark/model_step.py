"""Calls a Python model's function on the rows of a view: for ``DataFrame.mapInArrow``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.models.calls import Caller
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.models.declarations import RowModel
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.partial_step import control_rows, count_records

_OWN = [(PART, pa.int64()), (CONTROL, pa.string()), (KEEP, pa.bool_())]


@dataclass(frozen=True)
class ModelStep:
    """Calls a function on the rows of each part, batch by batch.

    Its input is counted here: the function may drop and multiply rows, so no later step could.
    """

    view: OperatorId
    code: ModelCode

    @property
    def model(self) -> RowModel:
        """The model that the file declares."""
        found = declared(self.code)
        assert isinstance(found, RowModel)
        return found

    @property
    def schema(self) -> pa.Schema:
        """The output schema."""
        return pa.schema([*_OWN, *self.model.columns])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function on live rows; pass reports on."""
        caller, schema = Caller(self.view, self.code.file), self.schema
        for sequence, batch in enumerate(batches):
            part = batch.column(PART)[0].as_py() if batch.num_rows else 0
            reports = batch.column(CONTROL).drop_null().to_pylist()
            records = batch.filter(pc.is_null(batch.column(CONTROL)))
            keep = pc.fill_null(records.column(KEEP), False)
            if records.num_rows:
                reports.append(count_records(self.view, part, sequence, keep))
            try:
                made = [*self._made(caller, pa.Table.from_batches([records.filter(keep)]))]
            except LaminarError as error:
                yield control_rows([*reports, json.dumps(error.to_record())], part, schema)
                return
            if reports:
                yield control_rows(reports, part, schema)
            yield from made

    def _made(self, caller: Caller, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        model = self.model
        parts = rows.column(PART)
        given = rows.drop_columns([PART, CONTROL, KEEP])
        for part in pc.unique(parts).to_pylist():
            found = caller.rows(model, given.filter(pc.equal(parts, part)))
            own = [
                pa.array(np.full(found.num_rows, part, np.int64)),
                pa.nulls(found.num_rows, pa.string()),
                pa.array(np.ones(found.num_rows, np.bool_)),
            ]
            table = pa.table([*own, *found.columns], schema=self.schema)
            yield from table.combine_chunks().to_batches()

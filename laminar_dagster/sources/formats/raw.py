"""Passes values through undecoded: one column of STRING or BINARY."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.lines import as_records
from laminar_dagster.sources.formats.records import Offsets, Outcome
from laminar_dagster.sources.formats.text import not_utf8


@dataclass(frozen=True, slots=True)
class RawDecoder:
    """Puts values into the one declared column. A null value is a row, too."""

    schema: pa.Schema

    def __post_init__(self) -> None:
        """Refuse other columns.

        Raises:
            ValueError: There is not one column, or it is of another type.
        """
        kinds = [each.type for each in self.schema]
        if len(kinds) != 1 or not (pa.types.is_string(kinds[0]) or pa.types.is_binary(kinds[0])):
            raise ValueError("format raw has one column, the value, of STRING or BINARY")

    def decode(self, values: pa.BinaryArray, positions: Offsets) -> Outcome:
        """Take all values; for a STRING column, those that are not UTF-8 are bad."""
        column = self.schema.field(0)
        reasons: dict[int, str] = {}
        if not column.nullable and values.null_count:
            places = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
            reasons = dict.fromkeys(places.tolist(), f"`{column.name}` must not be null")
        if pa.types.is_string(column.type):
            for place in not_utf8(as_records(values, positions)).tolist():
                reasons.setdefault(place, "not UTF-8")
        bad = [
            BadRecord(int(positions[place]), values[place].as_py() or b"", reasons[place])
            for place in sorted(reasons)
        ]
        if bad:
            keep = np.ones(len(values), np.bool_)
            keep[list(reasons)] = False
            values, positions = values.filter(pa.array(keep)), positions[keep]
        rows = pa.RecordBatch.from_arrays([values.cast(column.type)], schema=self.schema)
        return Outcome(rows, positions, bad)

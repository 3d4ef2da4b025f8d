"""Weights of records: 1 adds a record to its partials, -1 (a retraction) removes it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.keyed_rows import WEIGHT


def weighed(
    records: pa.Table, columns: Sequence[PartialColumn], operator: str
) -> tuple[pa.Table, tuple[PartialColumn, ...]]:
    """Return records and partials in which each record counts by its weight.

    Raises:
        ComputeFailed: A weight is neither 1 nor -1, or the negation of a value does not fit.
    """
    check_weights(records, operator)
    weight = records.column(WEIGHT).cast(pa.int64())
    made: list[PartialColumn] = []
    for number, column in enumerate(columns):
        if column.is_opaque:
            made.append(replace(column, weight=WEIGHT))
            continue
        name = f"_w{number}"
        try:
            records = records.append_column(name, _signed(records, column, weight))
        except pa.ArrowInvalid as error:
            raise ComputeFailed(operator, str(error)) from None
        made.append(replace(column, argument=name, first="sum"))
    return records, tuple(made)


def check_weights(records: pa.Table, operator: str) -> None:
    """Check that every weight is 1 or -1.

    Raises:
        ComputeFailed: A weight is something else.
    """
    weight = records.column(WEIGHT).cast(pa.int64())
    known = pc.is_in(weight, value_set=pa.array([1, -1], pa.int64()))
    if not pc.all(known, min_count=0).as_py():
        raise ComputeFailed(operator, f"`{WEIGHT}` has to be 1 or -1 in every row")


def _signed(records: pa.Table, column: PartialColumn, weight: pa.ChunkedArray) -> pa.ChunkedArray:
    """What a record adds to a count or a sum."""
    if column.first == "count":
        if column.argument is None:
            return weight
        counts = pc.is_valid(records.column(column.argument))
        return pc.if_else(counts, weight, pa.scalar(0, pa.int64()))
    plain = records.column(column.argument).cast(column.arrow_type)
    signed = pc.if_else(pc.less(weight, 0), pc.negate_checked(plain), plain)
    # Null adds 0. Whether a sum saw any value at all is known from the count beside it.
    return pc.fill_null(signed, pa.scalar(0, column.arrow_type))

"""Aggregates as mergeable partials, in Arrow.

An aggregate is kept as one or two columns that can be merged in any number of steps: COUNT and SUM
by adding, MIN and MAX by choosing, AVG as a sum and a count. Rows are merged in the order in which
they stand, in one thread, so that sums of floats come out the same on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ComputeFailed

Merge = Literal["sum", "min", "max"]

_AT_LEAST_ONE: Final = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_INT64_LIMIT: Final = 2**63


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column of the state.

    Attributes:
        name: In the state.
        argument: The column of the input it is made of; None counts rows.
        first: How it is made of the input.
        merge: How partials become one.
        arrow_type: In the state.
        argument_type: Of the argument; None where it is not known, or there is none.
    """

    name: str
    argument: str | None
    first: Literal["count", "sum", "min", "max"]
    merge: Merge
    arrow_type: pa.DataType
    argument_type: pa.DataType | None = None


def first_partials(
    table: pa.Table, keys: Sequence[str], columns: Sequence[PartialColumn], operator: str
) -> pa.Table:
    """Aggregate input rows."""
    wanted = [(column.name, column.argument, column.first) for column in columns]
    return _aggregate(table, keys, wanted, columns, operator)


def merge_partials(
    table: pa.Table, keys: Sequence[str], columns: Sequence[PartialColumn], operator: str
) -> pa.Table:
    """Merge partials, in the order in which they stand."""
    wanted = [(column.name, column.name, column.merge) for column in columns]
    return _aggregate(table, keys, wanted, columns, operator)


def _aggregate(
    table: pa.Table,
    keys: Sequence[str],
    wanted: Sequence[tuple[str, str | None, str]],
    columns: Sequence[PartialColumn],
    operator: str,
) -> pa.Table:
    prepared: dict[str, Any] = {key: table.column(key) for key in keys}
    steps: list[tuple[Any, ...]] = []
    results: list[str] = []
    for (name, argument, function), column in zip(wanted, columns, strict=True):
        if argument is None:
            steps.append(([], "count_all"))
            results.append("count_all")
            continue
        values = table.column(argument)
        if function == "sum":
            values = _summable(values, column.arrow_type)
        elif function in ("min", "max") and pa.types.is_floating(values.type):
            values = ordered_bits(values)
        prepared[name] = values
        steps.append((name, function, _AT_LEAST_ONE if function == "sum" else None))
        results.append(f"{name}_{function}")
    grouped = pa.table(prepared).group_by(list(keys), use_threads=False).aggregate(steps)
    out = {key: grouped.column(key) for key in keys}
    for column, result in zip(columns, results, strict=True):
        out[column.name] = _finish(grouped.column(result), column, operator)
    return pa.table(out)


def _summable(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Wide enough that adding cannot overflow unnoticed."""
    if kind == pa.int64() and len(values):
        extremes = pc.min_max(values).as_py()
        largest = max(abs(extremes["min"] or 0), abs(extremes["max"] or 0))
        if largest * len(values) >= _INT64_LIMIT:
            return values.cast(pa.decimal128(38, 0))
    return values.cast(kind)


def _finish(values: pa.ChunkedArray, column: PartialColumn, operator: str) -> pa.ChunkedArray:
    if pa.types.is_floating(column.arrow_type) and values.type == pa.int64():
        return _from_ordered_bits(values, column.arrow_type)
    try:
        return values.cast(column.arrow_type)
    except pa.ArrowInvalid as error:
        raise ComputeFailed(operator, f"{column.name} does not fit its type: {error}") from None


# --- floats in the order of SQL, in which NaN is the largest ------------------------------------


def ordered_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers that compare as the floats do. Arrow's own MIN and MAX leave out NaN."""
    valid = pc.is_valid(values)
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    # One NaN, and one zero.
    floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
    bits = floats.view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.chunked_array([pa.array(ordered, pa.int64(), mask=mask)])


def _from_ordered_bits(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    valid = pc.is_valid(values)
    ordered = pc.fill_null(values, 0).to_numpy()
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    floats = pa.array(bits.view(np.float64), pa.float64(), mask=mask, from_pandas=False)
    return pa.chunked_array([floats]).cast(kind)

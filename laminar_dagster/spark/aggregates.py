"""Aggregates as mergeable partials, in Arrow.

An aggregate is kept as one or two columns that can be merged in any number of steps: COUNT and SUM
by adding, MIN and MAX by choosing, AVG as a sum and a count, a set as a list of its values, and
values that may be retracted as a multiset. Rows are merged in the order given, in one thread, so
that sums of floats are the same on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.spark.answers import together
from laminar_dagster.spark.gathering import chosen, gathered, gathered_lists
from laminar_dagster.spark.moments import (
    merged_moments,
    merged_paired_moments,
    moments,
    paired_moments,
)
from laminar_dagster.spark.multisets import Numbers, counted, merged
from laminar_dagster.spark.row_order import from_ordered_bits, ordered_bits
from laminar_dagster.spark.sketches import buckets, merged_registers, registers

_Both = Literal[
    "sum", "min", "max", "min_by", "max_by", "values", "distinct", "bit_and", "bit_or", "bit_xor"
]
Merge = _Both | Literal["multisets", "register_maxima", "merged_moments", "merged_paired_moments"]
First = _Both | Literal["count", "multiset", "buckets", "registers", "moments", "paired_moments"]

_AT_LEAST_ONE: Final = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)
_INT64_LIMIT: Final = 2**63
_ROW: Final = "_row"


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column of the state.

    Attributes:
        name: Its name in the state.
        argument: The input column it is made of; None counts rows.
        first: The function that makes a partial of input rows.
        merge: The function that merges partials.
        arrow_type: Its type in the state.
        argument_type: The type of the argument; None where it is not known, or there is none.
        by: For MIN_BY and MAX_BY the column to compare: its name in the input, and in the state.
        others: Further input columns, kept beside the argument.
        weight: The input column with the weight of each row; None for a weight of 1.
        precision: The precision of a sketch, in bits.
    """

    name: str
    argument: str | None
    first: First
    merge: Merge
    arrow_type: pa.DataType
    argument_type: pa.DataType | None = None
    by: tuple[str, str] | None = None
    others: tuple[str, ...] = ()
    weight: str | None = None
    precision: int = 0

    @property
    def is_opaque(self) -> bool:
        """Whether it stays in the state: only values finalised from it are output."""
        return self.merge in ("multisets", "register_maxima")


def first_partials(
    table: pa.Table, keys: Sequence[str], columns: Sequence[PartialColumn], operator: str
) -> pa.Table:
    """Aggregate input rows into partials, one row for each key."""
    wanted = [
        _Step(
            column,
            column.argument,
            column.first,
            column.by[0] if column.by else None,
            column.others,
            column.weight,
        )
        for column in columns
    ]
    return _aggregate(table, keys, wanted, operator)


def merge_partials(
    table: pa.Table, keys: Sequence[str], columns: Sequence[PartialColumn], operator: str
) -> pa.Table:
    """Merge partials, in the order of the rows, to one row for each key."""
    wanted = [
        _Step(column, column.name, column.merge, column.by[1] if column.by else None)
        for column in columns
    ]
    return _aggregate(table, keys, wanted, operator)


@dataclass(frozen=True, slots=True)
class _Step:
    """The function and the input columns that a result column is made with."""

    column: PartialColumn
    argument: str | None
    function: First | Merge
    by: str | None
    others: tuple[str, ...] = ()
    weight: str | None = None


def _aggregate(
    table: pa.Table, keys: Sequence[str], wanted: Sequence[_Step], operator: str
) -> pa.Table:
    prepared: dict[str, Any] = {key: table.column(key) for key in keys}
    steps: list[tuple[Any, ...]] = []
    results: dict[str, str] = {}
    gathers = [each for each in wanted if each.function in _GATHERED]
    for each in wanted:
        name = each.column.name
        if each.argument is None:
            steps.append(([], "count_all"))
            results[name] = "count_all"
            continue
        if each in gathers:
            continue
        values = table.column(each.argument)
        if each.function == "sum":
            values = _summable(values, each.column.arrow_type)
        elif each.function in ("min", "max") and pa.types.is_floating(values.type):
            values = ordered_bits(values)
        prepared[name] = values
        steps.append((name, each.function, _AT_LEAST_ONE if each.function == "sum" else None))
        results[name] = f"{name}_{each.function}"
    if gathers:
        prepared[_ROW] = pa.array(np.arange(table.num_rows))
        steps.append((_ROW, "list"))
    grouped = pa.table(prepared).group_by(list(keys), use_threads=False).aggregate(steps)
    made = _gather(table, grouped.column(f"{_ROW}_list"), gathers) if gathers else {}
    out = {key: grouped.column(key) for key in keys}
    for each in wanted:
        name = each.column.name
        found = made[name] if name in made else grouped.column(results[name])
        out[name] = _finish(found, each.column, operator)
    return pa.table(out)


def _gather(table: pa.Table, rows: pa.ChunkedArray, wanted: Sequence[_Step]) -> dict[str, Any]:
    """Compute the columns that need all rows of a group at once.

    Args:
        table: The rows.
        rows: For each group the indices of its rows.
        wanted: The columns to compute.
    """
    count = len(rows)
    lists = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], rows.type)
    order = pc.list_flatten(lists)
    groups = pc.list_parent_indices(lists).to_numpy()
    made: dict[str, Any] = {}
    for each in wanted:
        assert each.argument is not None
        named = (each.argument, *each.others)
        group = _Grouped(
            tuple(table.column(name).take(order) for name in named),
            groups,
            count,
            table.column(each.by).take(order) if each.by is not None else None,
            table.column(each.weight).take(order) if each.weight is not None else None,
            each.column,
        )
        made[each.column.name] = _GATHERED[each.function](group)
    return made


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Rows in the order of their groups.

    Attributes:
        columns: The columns to aggregate.
        groups: The number of the group of each row.
        count: The number of groups.
        by: The column that MIN_BY and MAX_BY compare.
        weight: The weight of each row; None for 1.
        wanted: The column to compute.
    """

    columns: tuple[Any, ...]
    groups: Numbers
    count: int
    by: Any
    weight: Any
    wanted: PartialColumn

    @property
    def values(self) -> Any:
        """The values of the first column."""
        return self.columns[0]

    @property
    def weights(self) -> Numbers:
        """The weight of each row."""
        if self.weight is None:
            return np.ones(len(self.groups), np.int64)
        found: Numbers = self.weight.cast(pa.int64()).to_numpy()
        return found

    def lists(self, *, distinct: bool) -> Any:
        """The values of each group as a list, from values or from lists of values."""
        make = gathered_lists if pa.types.is_list(self.values.type) else gathered
        return make(self.values, self.groups, self.count, distinct=distinct)

    def bits(self, function: Any) -> Any:
        """The integers of each group, combined with a bitwise function."""
        keep = self.values.is_valid().to_numpy()
        plain = self.values.drop_null().cast(pa.int64()).to_numpy()
        return together(function, plain, self.groups[keep], self.count)


_GATHERED: Final[Mapping[str, Callable[[_Grouped], Any]]] = {
    "min_by": lambda it: chosen(it.values, it.by, it.groups, it.count, largest=False),
    "max_by": lambda it: chosen(it.values, it.by, it.groups, it.count, largest=True),
    "values": lambda it: it.lists(distinct=False),
    "distinct": lambda it: it.lists(distinct=True),
    "bit_and": lambda it: it.bits(np.bitwise_and),
    "bit_or": lambda it: it.bits(np.bitwise_or),
    "bit_xor": lambda it: it.bits(np.bitwise_xor),
    "multiset": lambda it: counted(it.columns, it.weights, it.groups, it.count),
    "multisets": lambda it: merged(it.values, it.groups, it.count),
    "buckets": lambda it: counted(
        [buckets(it.values, it.wanted.precision)], it.weights, it.groups, it.count
    ),
    "registers": lambda it: registers(it.values, it.groups, it.count, it.wanted.precision),
    "register_maxima": lambda it: merged_registers(it.values, it.groups, it.count),
    "moments": lambda it: moments(
        it.values, it.weights, it.groups, it.count, kind=it.wanted.arrow_type
    ),
    "merged_moments": lambda it: merged_moments(it.values, it.groups, it.count),
    "paired_moments": lambda it: paired_moments(it.columns, it.weights, it.groups, it.count),
    "merged_paired_moments": lambda it: merged_paired_moments(it.values, it.groups, it.count),
}


def _summable(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values cast to a type so wide that their sum cannot overflow unnoticed."""
    if kind == pa.int64() and len(values):
        extremes = pc.min_max(values).as_py()
        largest = max(abs(extremes["min"] or 0), abs(extremes["max"] or 0))
        if largest * len(values) >= _INT64_LIMIT:
            return values.cast(pa.decimal128(38, 0))
    return values.cast(kind)


def _finish(values: pa.ChunkedArray, column: PartialColumn, operator: str) -> pa.ChunkedArray:
    if pa.types.is_floating(column.arrow_type) and values.type == pa.int64():
        return from_ordered_bits(values, column.arrow_type)
    if values.type == column.arrow_type:
        return values
    try:
        return values.cast(column.arrow_type)
    except pa.ArrowInvalid as error:
        raise ComputeFailed(operator, f"{column.name} does not fit its type: {error}") from None

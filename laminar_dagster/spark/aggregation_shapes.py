"""What an aggregation keeps, and what becomes of it: decided on the driver, from query and types.

Executors use the result (``state_shape``, ``aggregates``) and need nothing of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from laminar_dagster.config.model import (
    Aggregate,
    Aggregation,
    KeyedAggregate,
    Ranked,
    Window,
    WindowAggregate,
)
from laminar_dagster.config.operators import (
    ROWS_BY_WEIGHT,
    Partial,
    all_partials,
    arguments_of,
    partials_of,
)
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregates import Merge, PartialColumn
from laminar_dagster.spark.columns import quoted
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.ranked_shape import Place, RankedShape
from laminar_dagster.spark.state_shape import KeyColumn, StateShape
from laminar_dagster.spark.window_assignment import WindowAssignment


class WrongType(ValueError):
    """A key or an argument is of a type that it cannot have."""


def argument_columns(query: Aggregation) -> dict[str, str]:
    """The columns that carry the arguments of aggregates, by their SQL; each argument once."""
    texts = dict.fromkeys(arguments_of(query))
    return {text: f"_x{number}" for number, text in enumerate(texts)}


def shape_of(
    operator: OperatorId, query: WindowAggregate, types: Mapping[str, pa.DataType]
) -> StateShape:
    """The shape of the state of windows that are put out when they close.

    Args:
        operator: Its name.
        query: The window.
        types: Of its keys and arguments, by the columns that carry them.

    Raises:
        WrongType: A key or an argument is of a type that it cannot have.
    """
    return StateShape(operator, *_columns(query, types))


def keyed_shape_of(
    operator: OperatorId, query: KeyedAggregate, types: Mapping[str, pa.DataType]
) -> KeyedShape:
    """The shape of a state that is kept by key. The arguments are those of ``shape_of``.

    Raises:
        WrongType: A key or an argument is of a type that it cannot have.
    """
    weight = ROWS_BY_WEIGHT.name if query.weight is not None else None
    return KeyedShape(
        operator, *_columns(query, types), query.kind, query.gap_micros, weight=weight
    )


def ranked_shape_of(
    operator: OperatorId, query: Ranked, types: Mapping[str, pa.DataType]
) -> RankedShape:
    """The shape of the first rows of each key. The arguments are those of ``shape_of``.

    Raises:
        WrongType: A column is of a type that has no order.
    """
    named = {**{key.name: key.sql for key in query.keys}, **ranked_columns(query)}
    for name, sql in named.items():
        if pa.types.is_nested(types[name]):
            raise WrongType(
                f"`{sql}` beside ROW_NUMBER is of type {types[name]}, which has no order"
            )
    keys = tuple(KeyColumn(key.name, key.sql, types[key.name]) for key in query.keys)
    kept = tuple(
        PartialColumn(name, name, "min", "min", types[name], types[name])
        for name in ranked_columns(query)
    )
    order = tuple(
        Place(f"_o{number}", each.descending, each.nulls_first)
        for number, each in enumerate(query.order)
    )
    return RankedShape(
        operator, keys, kept, "rank", query.gap_micros, order=order, limit=query.limit
    )


def ranked_columns(query: Ranked) -> dict[str, str]:
    """The columns that a ranking keeps of its input, and what each is, as Spark SQL."""
    order = {f"_o{number}": each.sql for number, each in enumerate(query.order)}
    return {**order, **{f"_p{number}": each.sql for number, each in enumerate(query.columns)}}


def assignment_of(window: Window) -> WindowAssignment:
    """Which windows a record is in, for the executors."""
    return WindowAssignment(
        window.size_micros, window.slide_micros, window.offset_micros, window.grows
    )


def _columns(
    query: Aggregation, types: Mapping[str, pa.DataType]
) -> tuple[tuple[KeyColumn, ...], tuple[PartialColumn, ...]]:
    for key in query.keys:
        if pa.types.is_nested(types[key.name]):
            raise WrongType(f"cannot GROUP BY `{key.sql}`, which is of type {types[key.name]}")
    carried = argument_columns(query)
    for aggregate in query.aggregates:
        if aggregate.argument is not None:
            _check_argument(aggregate, types[carried[aggregate.argument]])
        if aggregate.by is not None and pa.types.is_nested(types[carried[aggregate.by]]):
            kind = types[carried[aggregate.by]]
            raise WrongType(f"`{aggregate.by}` has no order: it is of type {kind}")
    columns = []
    for partial in all_partials(query):
        column = carried[partial.argument] if partial.argument is not None else None
        made = partial_column(partial, column, types[column] if column else None)
        if partial.by is not None:
            least = Partial("min" if partial.function == "min_by" else "max", partial.by)
            made = replace(made, by=(carried[partial.by], least.name))
        columns.append(made)
    keys = tuple(KeyColumn(key.name, key.sql, types[key.name]) for key in query.keys)
    return keys, tuple(columns)


def partial_column(partial: Partial, argument: str | None, argument_type: Any) -> PartialColumn:
    """The column that keeps a partial.

    Args:
        partial: What it holds.
        argument: The column of the input with the argument's values; None counts rows.
        argument_type: Of that column, in Arrow.
    """
    merge: Merge = "sum"
    match partial.function:
        case "count":
            kind = pa.int64()
        case "sum":
            kind = _sum_type(argument_type)
        case "min" | "max" | "min_by" | "max_by" as merge:
            kind = argument_type
        case "values" | "distinct" as merge:
            kind = pa.list_(argument_type)
    return PartialColumn(partial.name, argument, partial.function, merge, kind, argument_type)


def finished_sql(aggregate: Aggregate, argument_type: Any, *, is_weighed: bool = False) -> str:
    """The aggregate's value, as Spark SQL over its partials, of Spark's own result type."""
    kept = partials_of(aggregate, is_weighed=is_weighed)
    value, *count = (quoted(partial.name) for partial in kept)
    if is_weighed and aggregate.function == "sum":
        # What was taken back to the last value is no sum of 0.
        value = f"IF({count[0]} = 0, NULL, {value})"
    is_decimal = argument_type is not None and pa.types.is_decimal(argument_type)
    match aggregate.function:
        case "sum" if is_decimal:
            precision, scale = argument_type.precision, argument_type.scale
            return f"CAST({value} AS DECIMAL({min(38, precision + 10)}, {scale}))"
        case "avg" if is_decimal:
            precision, scale = argument_type.precision, argument_type.scale
            result = f"DECIMAL({min(38, precision + 4)}, {min(38, scale + 4)})"
            return f"CAST({value} / NULLIF({count[0]}, 0) AS {result})"
        case "count_distinct":
            return f"CAST(size({value}) AS BIGINT)"
        case "avg":
            return f"CAST({value} AS DOUBLE) / NULLIF({count[0]}, 0)"
        case _:
            return value


def _check_argument(aggregate: Aggregate, kind: pa.DataType) -> None:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    call = f"{aggregate.function.upper()}({aggregate.argument})"
    if aggregate.function in ("sum", "avg") and not is_number:
        raise WrongType(f"{call} needs a number, and its argument is of type {kind}")
    if aggregate.function not in ("count", "sum", "avg") and pa.types.is_nested(kind):
        raise WrongType(f"{call} needs values with an order, and they are of type {kind}")


def _sum_type(argument_type: Any) -> pa.DataType:
    if argument_type is not None and pa.types.is_decimal(argument_type):
        return pa.decimal128(38, argument_type.scale)
    if argument_type is not None and pa.types.is_floating(argument_type):
        return pa.float64()
    return pa.int64()

"""State shapes and output values of aggregations, derived on the driver from query and types.

Executors use the result (``state_shape``, ``aggregates``) and need nothing of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from laminar_dagster.config.operators import arguments_of
from laminar_dagster.config.partials import ROWS_BY_WEIGHT, Partial, all_partials
from laminar_dagster.config.relations import (
    Aggregation,
    KeyedAggregate,
    Ranked,
    Stateful,
    Window,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregate_types import WrongType, answer_of, check_arguments, column_of
from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.answers import Answer
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.keyed_partials import KeyedPartials
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.partial_step import WindowPartials
from laminar_dagster.spark.ranked_shape import RankedShape
from laminar_dagster.spark.row_order import Place
from laminar_dagster.spark.state_shape import KeyColumn, StateShape
from laminar_dagster.spark.window_assignment import WindowAssignment

# In microseconds. An event exactly a gap after the last one still belongs to the session, as it
# does in Spark and Flink: so a session closes a microsecond after its end.
TOUCHING: Final = 1


def argument_columns(query: Aggregation) -> dict[str, str]:
    """The columns that carry the arguments of aggregates, by their SQL; each argument once."""
    texts = dict.fromkeys(arguments_of(query))
    return {text: f"_x{number}" for number, text in enumerate(texts)}


def shape_of(
    operator: OperatorId,
    query: WindowAggregate,
    types: Mapping[str, pa.DataType],
    growth: Growth | None = None,
) -> StateShape:
    """The shape of the state of windows that are emitted when they close.

    Args:
        operator: The operator's id.
        query: The window aggregation.
        types: The types of keys and arguments, by the columns that carry them.
        growth: The partials added to the state after it began.

    Raises:
        WrongType: A key or an argument is of a type that it cannot have.
    """
    weight = ROWS_BY_WEIGHT.name if query.weight is not None else None
    return StateShape(operator, *_columns(query, types), weight, growth, _answers(query, types))


def keyed_shape_of(
    operator: OperatorId,
    query: KeyedAggregate,
    types: Mapping[str, pa.DataType],
    growth: Growth | None = None,
) -> KeyedShape:
    """The shape of a state that is kept by key. The arguments are those of ``shape_of``.

    Raises:
        WrongType: A key or an argument is of a type that it cannot have.
    """
    weight = ROWS_BY_WEIGHT.name if query.weight is not None else None
    gap = query.gap_micros
    if query.kind == "session" and gap is not None:
        gap += TOUCHING
    return KeyedShape(
        operator,
        *_columns(query, types),
        query.kind,
        gap,
        weight,
        growth,
        _answers(query, types),
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
    weight = None
    if query.weight is not None:
        weight = ROWS_BY_WEIGHT.name
        kept = (*kept, PartialColumn(weight, None, "count", "sum", pa.int64()))
    order = tuple(
        Place(f"_o{number}", each.descending, each.nulls_first)
        for number, each in enumerate(query.order)
    )
    return RankedShape(
        operator, keys, kept, "rank", query.gap_micros, weight, order=order, limit=query.limit
    )


def ranked_columns(query: Ranked) -> dict[str, str]:
    """The columns that a ranking keeps of its input, each with its Spark SQL expression."""
    order = {f"_o{number}": each.sql for number, each in enumerate(query.order)}
    return {**order, **{f"_p{number}": each.sql for number, each in enumerate(query.columns)}}


def carried_columns(query: Stateful) -> dict[str, str]:
    """The columns that an operator needs of a record beside its time, with their Spark SQL."""
    found = {key.name: key.sql for key in query.keys}
    if isinstance(query, Ranked):
        found |= ranked_columns(query)
    else:
        found |= {name: sql for sql, name in argument_columns(query).items()}
    return {**found, WEIGHT: query.weight} if query.weight is not None else found


def partials_for(
    operator: OperatorId,
    query: Stateful,
    types: Mapping[str, pa.DataType],
    growth: Growth | None = None,
) -> WindowPartials | KeyedPartials:
    """The step that makes partials of records. The arguments are those of ``shape_of``.

    Raises:
        WrongType: A key or an argument is of a type that it cannot have.
    """
    match query:
        case WindowAggregate():
            return WindowPartials(
                shape_of(operator, query, types, growth), assignment_of(query.window)
            )
        case KeyedAggregate():
            windows = assignment_of(query.window) if query.window else None
            return KeyedPartials(keyed_shape_of(operator, query, types, growth), windows)
        case Ranked():
            return KeyedPartials(ranked_shape_of(operator, query, types))


def assignment_of(window: Window) -> WindowAssignment:
    """The executors' assignment of records to windows."""
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
        arguments = {text: types[carried[text]] for text in aggregate.arguments}
        check_arguments(aggregate, arguments, is_weighed=query.weight is not None)
    columns = []
    for partial in all_partials(query):
        names = tuple(carried[text] for text in partial.arguments)
        made = column_of(partial, names, [types[name] for name in names])
        if partial.by is not None:
            least = Partial("min" if partial.function == "min_by" else "max", partial.by)
            made = replace(made, by=(carried[partial.by], least.name))
        columns.append(made)
    keys = tuple(KeyColumn(key.name, key.sql, types[key.name]) for key in query.keys)
    return keys, tuple(columns)


def _answers(query: Aggregation, types: Mapping[str, pa.DataType]) -> tuple[Answer, ...]:
    carried = argument_columns(query)
    found = (
        answer_of(
            aggregate,
            {text: types[carried[text]] for text in aggregate.arguments},
            is_weighed=query.weight is not None,
        )
        for aggregate in query.aggregates
    )
    return tuple(each for each in found if each is not None)

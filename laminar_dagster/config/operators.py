"""The stateful operators of a view: their ids, and what their state holds."""

from __future__ import annotations

from collections.abc import Iterator

from laminar_dagster.config.model import View
from laminar_dagster.config.partials import ROWS_BY_WEIGHT, all_partials
from laminar_dagster.config.relations import (
    Explode,
    Join,
    Keeper,
    KeyedAggregate,
    PythonKeyed,
    PythonRows,
    Ranked,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    Stateful,
    TableInput,
    UnionAll,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId


def arguments_of(query: Stateful) -> Iterator[str]:
    """The expressions over the input, besides keys and time, whose values the state stores."""
    if isinstance(query, Ranked):
        yield from (each.sql for each in query.order)
        yield from (each.sql for each in query.columns)
        return
    for each in query.aggregates:
        yield from each.arguments


def kept_by(query: Stateful) -> tuple[str, ...]:
    """Names for everything that the state holds besides keys, for the operator's definition."""
    if isinstance(query, Ranked):
        order = (
            f"{each.sql} {'DESC' if each.descending else 'ASC'} "
            f"NULLS {'FIRST' if each.nulls_first else 'LAST'}"
            for each in query.order
        )
        kept = (f"first {query.limit} by {', '.join(order)}", *(each.sql for each in query.columns))
        return (*kept, ROWS_BY_WEIGHT.name) if query.weight is not None else kept
    return tuple(each.name for each in all_partials(query))


def time_of(query: Stateful) -> str | None:
    """The event time that a state depends on, as Spark SQL; None if it depends on none."""
    if isinstance(query, Ranked):
        return query.time
    if isinstance(query, KeyedAggregate):
        return query.window.time if query.window else query.time
    return query.window.time


def id_of_part(operator: OperatorId, index: int) -> OperatorId:
    """The id of an operator in one part of a UNION ALL."""
    return OperatorId(f"{operator}.{index}")


def id_of_input(operator: OperatorId) -> OperatorId:
    """The id of an operator in the subquery that an aggregation reads."""
    return OperatorId(f"{operator}.in")


def id_of_side(operator: OperatorId, index: int) -> OperatorId:
    """The id of an operator on the left (0) or right (1) of a join."""
    return OperatorId(f"{operator}.{('left', 'right')[index]}")


def id_of_reference(operator: OperatorId) -> OperatorId:
    """The id under which records are counted that are joined with a reference table."""
    return OperatorId(f"{operator}.reference")


def id_of_explode(operator: OperatorId) -> OperatorId:
    """The id under which records are counted that EXPLODE turns into several rows, or none."""
    return OperatorId(f"{operator}.explode")


def stateful_operators(view: View) -> Iterator[tuple[OperatorId, Keeper]]:
    """The stateful operators of a view, each with the id under which its state is stored.

    A query of a WITH clause that the view reads twice has one state.
    """
    seen: set[Keeper] = set()
    for operator, query in _stateful(view.query, OperatorId(view.name)):
        if query not in seen:
            seen.add(query)
            yield operator, query


def _stateful(relation: Relation, operator: OperatorId) -> Iterator[tuple[OperatorId, Keeper]]:
    match relation:
        case TableInput():
            return
        case Select() | ReferenceJoin() | ReferenceValue() | Explode() | PythonRows():
            yield from _stateful(relation.source, operator)
        case WindowAggregate() | KeyedAggregate() | Ranked() | PythonKeyed():
            yield operator, relation
            yield from _stateful(relation.source, id_of_input(operator))
        case Join():
            yield operator, relation
            for index, side in enumerate(relation.sides):
                yield from _stateful(side.source, id_of_side(operator, index))
        case UnionAll(parts):
            for index, part in enumerate(parts):
                yield from _stateful(part, id_of_part(operator, index))

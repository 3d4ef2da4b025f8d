"""The operators of a view that keep state: what they are called, and what their state holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from laminar_dagster.config.model import (
    Aggregate,
    Aggregation,
    KeyedAggregate,
    Ranked,
    Relation,
    Select,
    Stateful,
    TableInput,
    UnionAll,
    View,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of an operator's state, named after what it holds.

    So aggregates share what they have in common, and a state can be read after an aggregate was
    added, moved or removed elsewhere in the query.
    """

    function: Literal["count", "sum", "min", "max", "min_by", "max_by", "values", "distinct"]
    argument: str | None
    is_weighed: bool = False
    by: str | None = None

    @property
    def name(self) -> str:
        """For example ``sum(price)``, ``count(*)`` or ``count(*) by weight``."""
        given = "*" if self.argument is None else self.argument
        call = f"{self.function}({given if self.by is None else f'{given}, {self.by}'})"
        return f"{call} by weight" if self.is_weighed else call


# How many rows of a key are there that were not taken back.
ROWS_BY_WEIGHT: Final = Partial("count", None, True)


def partials_of(aggregate: Aggregate, *, is_weighed: bool = False) -> tuple[Partial, ...]:
    """What has to be kept for an aggregate, so that it can be merged.

    Args:
        aggregate: Which.
        is_weighed: Whether rows are taken back: then a sum has to know when nothing is left.
    """
    argument = aggregate.argument
    match aggregate.function:
        case "avg":
            kept = Partial("sum", argument, is_weighed)
            return kept, Partial("count", argument, is_weighed)
        case "sum" if is_weighed:
            kept = Partial("sum", argument, is_weighed)
            return kept, Partial("count", argument, is_weighed)
        case "min_by":
            return Partial("min_by", argument, by=aggregate.by), Partial("min", aggregate.by)
        case "max_by":
            return Partial("max_by", argument, by=aggregate.by), Partial("max", aggregate.by)
        case "collect_list":
            return (Partial("values", argument),)
        case "collect_set" | "count_distinct":
            return (Partial("distinct", argument),)
        case "count" | "sum" | "min" | "max":
            return (Partial(aggregate.function, argument, is_weighed),)


def all_partials(query: Aggregation) -> tuple[Partial, ...]:
    """What the state of an aggregation holds for each of its rows, each once."""
    is_weighed = isinstance(query, KeyedAggregate) and query.weight is not None
    wanted = [ROWS_BY_WEIGHT] if is_weighed else []
    for each in query.aggregates:
        wanted += partials_of(each, is_weighed=is_weighed)
    return tuple(dict.fromkeys(wanted))


def arguments_of(query: Stateful) -> Iterator[str]:
    """What is kept of its input beside keys and time, as Spark SQL."""
    if isinstance(query, Ranked):
        yield from (each.sql for each in query.order)
        yield from (each.sql for each in query.columns)
        return
    for each in query.aggregates:
        yield from (text for text in (each.argument, each.by) if text is not None)


def kept_by(query: Stateful) -> tuple[str, ...]:
    """What the state holds for each of its rows, told apart by name."""
    if isinstance(query, Ranked):
        order = (
            f"{each.sql} {'DESC' if each.descending else 'ASC'} "
            f"NULLS {'FIRST' if each.nulls_first else 'LAST'}"
            for each in query.order
        )
        return (f"first {query.limit} by {', '.join(order)}", *(each.sql for each in query.columns))
    return tuple(each.name for each in all_partials(query))


def time_of(query: Stateful) -> str | None:
    """The event time that a state depends on, as Spark SQL; None if on none."""
    if isinstance(query, Ranked):
        return query.time
    if isinstance(query, KeyedAggregate):
        return query.window.time if query.window else query.time
    return query.window.time


def id_of_part(operator: OperatorId, index: int) -> OperatorId:
    """The name of an operator in one part of a UNION ALL."""
    return OperatorId(f"{operator}.{index}")


def id_of_input(operator: OperatorId) -> OperatorId:
    """The name of an operator in the subquery that an aggregation reads."""
    return OperatorId(f"{operator}.in")


def stateful_operators(view: View) -> Iterator[tuple[OperatorId, Stateful]]:
    """What keeps state in a view, by the names under which their state is kept.

    A query that a view reads twice, by a name that WITH gives it, keeps its state once.
    """
    seen: set[Stateful] = set()
    for operator, query in _stateful(view.query, OperatorId(view.name)):
        if query not in seen:
            seen.add(query)
            yield operator, query


def _stateful(relation: Relation, operator: OperatorId) -> Iterator[tuple[OperatorId, Stateful]]:
    match relation:
        case TableInput():
            return
        case Select():
            yield from _stateful(relation.source, operator)
        case WindowAggregate() | KeyedAggregate() | Ranked():
            yield operator, relation
            yield from _stateful(relation.source, id_of_input(operator))
        case UnionAll(parts):
            for index, part in enumerate(parts):
                yield from _stateful(part, id_of_part(operator, index))

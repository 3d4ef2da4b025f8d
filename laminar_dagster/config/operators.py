"""The operators of a view that keep state: what they are called, and what their state holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from laminar_dagster.config.model import (
    Aggregate,
    Aggregation,
    KeyedAggregate,
    Relation,
    Select,
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

    function: Literal["count", "sum", "min", "max"]
    argument: str | None
    is_weighed: bool = False

    @property
    def name(self) -> str:
        """For example ``sum(price)``, ``count(*)`` or ``count(*) by weight``."""
        call = f"{self.function}({'*' if self.argument is None else self.argument})"
        return f"{call} by weight" if self.is_weighed else call


# How many rows of a key are there that were not taken back.
ROWS_BY_WEIGHT: Final = Partial("count", None, True)


def partials_of(aggregate: Aggregate, *, is_weighed: bool = False) -> tuple[Partial, ...]:
    """What has to be kept for an aggregate, so that it can be merged.

    Args:
        aggregate: Which.
        is_weighed: Whether rows are taken back: then a sum has to know when nothing is left.
    """
    if aggregate.function == "avg" or (is_weighed and aggregate.function == "sum"):
        kept = Partial("sum", aggregate.argument, is_weighed)
        return kept, Partial("count", aggregate.argument, is_weighed)
    return (Partial(aggregate.function, aggregate.argument, is_weighed),)


def all_partials(query: Aggregation) -> tuple[Partial, ...]:
    """What the state of an aggregation holds for each of its rows, each once."""
    is_weighed = isinstance(query, KeyedAggregate) and query.weight is not None
    wanted = [ROWS_BY_WEIGHT] if is_weighed else []
    for each in query.aggregates:
        wanted += partials_of(each, is_weighed=is_weighed)
    return tuple(dict.fromkeys(wanted))


def time_of(query: Aggregation) -> str | None:
    """The event time that an aggregation depends on, as Spark SQL; None if on none."""
    if isinstance(query, KeyedAggregate):
        return query.window.time if query.window else query.time
    return query.window.time


def id_of_part(operator: OperatorId, index: int) -> OperatorId:
    """The name of an operator in one part of a UNION ALL."""
    return OperatorId(f"{operator}.{index}")


def id_of_input(operator: OperatorId) -> OperatorId:
    """The name of an operator in the subquery that an aggregation reads."""
    return OperatorId(f"{operator}.in")


def stateful_operators(view: View) -> Iterator[tuple[OperatorId, Aggregation]]:
    """The aggregations of a view, by the names under which their state is kept."""
    yield from _aggregations(view.query, OperatorId(view.name))


def _aggregations(
    relation: Relation, operator: OperatorId
) -> Iterator[tuple[OperatorId, Aggregation]]:
    match relation:
        case TableInput():
            return
        case Select():
            yield from _aggregations(relation.source, operator)
        case WindowAggregate() | KeyedAggregate():
            yield operator, relation
            yield from _aggregations(relation.source, id_of_input(operator))
        case UnionAll(parts):
            for index, part in enumerate(parts):
                yield from _aggregations(part, id_of_part(operator, index))

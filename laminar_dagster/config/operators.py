"""The operators of a view that keep state: what they are called, and what their state holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from laminar_dagster.config.model import (
    Aggregate,
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

    @property
    def name(self) -> str:
        """For example ``sum(price)`` or ``count(*)``."""
        return f"{self.function}({'*' if self.argument is None else self.argument})"


def partials_of(aggregate: Aggregate) -> tuple[Partial, ...]:
    """What has to be kept for an aggregate, so that it can be merged."""
    if aggregate.function == "avg":
        return Partial("sum", aggregate.argument), Partial("count", aggregate.argument)
    return (Partial(aggregate.function, aggregate.argument),)


def id_of_part(operator: OperatorId, index: int) -> OperatorId:
    """The name of an operator in one part of a UNION ALL."""
    return OperatorId(f"{operator}.{index}")


def id_of_input(operator: OperatorId) -> OperatorId:
    """The name of an operator in the subquery that a window reads."""
    return OperatorId(f"{operator}.in")


def stateful_operators(view: View) -> Iterator[tuple[OperatorId, WindowAggregate]]:
    """The windows of a view, by the names under which their state is kept."""
    yield from _windows(view.query, OperatorId(view.name))


def _windows(
    relation: Relation, operator: OperatorId
) -> Iterator[tuple[OperatorId, WindowAggregate]]:
    match relation:
        case TableInput():
            return
        case Select():
            yield from _windows(relation.source, operator)
        case WindowAggregate():
            yield operator, relation
            yield from _windows(relation.source, id_of_input(operator))
        case UnionAll(parts):
            for index, part in enumerate(parts):
                yield from _windows(part, id_of_part(operator, index))

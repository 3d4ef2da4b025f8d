"""The reference tables upstream of an operator, and what it depends on of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from laminar_dagster.config.model import Column, ReferenceTable, SourceTable, View
from laminar_dagster.config.needs import words_in
from laminar_dagster.config.references import ON_RETRACTION, REFRESH
from laminar_dagster.config.relations import (
    Explode,
    Join,
    KeyedAggregate,
    PythonKeyed,
    PythonRows,
    Ranked,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    TableInput,
    UnionAll,
    WindowAggregate,
)
from laminar_dagster.config.sql.changelog import WEIGHT


@dataclass(frozen=True, slots=True)
class TableBelow:
    """A reference table that an operator depends on.

    Attributes:
        columns: The columns that are used upstream of the operator.
        is_fixed: Whether the table must never change, because retractions are joined with it: they
            have to meet the same rows again.
    """

    table: ReferenceTable
    columns: tuple[Column, ...]
    is_fixed: bool


def tables_below(
    upstream: Sequence[Relation],
    references: Sequence[ReferenceTable],
    sources: Mapping[str, SourceTable],
    views: Mapping[str, View],
) -> Iterator[TableBelow]:
    """The reference tables that relations use.

    Args:
        upstream: Every relation that an operator is computed from.
        references: The pipeline's reference tables.
        sources: The pipeline's sources, by name.
        views: The pipeline's views, by name.
    """
    for table in references:
        uses = [
            each
            for each in upstream
            if isinstance(each, ReferenceJoin | ReferenceValue) and each.table == table.reference_id
        ]
        if uses:
            taken_back = any(_is_weighed(each, sources, views) for each in uses)
            is_fixed = taken_back and _stays(table)
            yield TableBelow(table, _looked_at(table, uses), is_fixed)


def _stays(table: ReferenceTable) -> bool:
    """Whether a table is read once only, and its author does not accept joins with newer rows."""
    is_accepted = table.options.get(ON_RETRACTION) == "join_current"
    return table.options.get(REFRESH) == "never" and not is_accepted


def _looked_at(
    table: ReferenceTable, uses: Sequence[ReferenceJoin | ReferenceValue]
) -> tuple[Column, ...]:
    """The columns whose names occur in expressions over a table; too many is safe."""
    texts, named = [], set[str]()
    for each in uses:
        if isinstance(each, ReferenceJoin):
            texts += [column.sql for column in each.found]
            named |= {match.lower() for match in each.matches}
        else:
            texts += [each.value, *([each.where] if each.where else [])]
    words = words_in(texts)
    if words is None:
        return table.columns
    return tuple(each for each in table.columns if each.name.lower() in words | named)


def _is_weighed(
    relation: Relation, sources: Mapping[str, SourceTable], views: Mapping[str, View]
) -> bool:
    """Whether a relation's rows have a ``_weight``, so that some may be retractions."""
    match relation:
        case TableInput() if relation.name in views:
            return WEIGHT in views[relation.name].columns
        case TableInput():
            return any(each.name == WEIGHT for each in sources[relation.name].columns)
        case Select() | WindowAggregate() | KeyedAggregate():
            return any(each.name == WEIGHT for each in relation.columns)
        case Ranked():
            return True
        case Join() | ReferenceJoin() | Explode():
            return relation.is_weighed
        case ReferenceValue():
            return _is_weighed(relation.source, sources, views)
        case UnionAll():
            return any(_is_weighed(each, sources, views) for each in relation.parts)
        case PythonRows() | PythonKeyed():
            return WEIGHT in relation.columns

"""Finds, on the driver, which sources must hand on late records for windows that allow them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.model import PipelineModel, View
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import (
    Explode,
    Join,
    Keeper,
    KeyedAggregate,
    ReferenceJoin,
    ReferenceValue,
    Relation,
    Select,
    TableInput,
    UnionAll,
    WindowAggregate,
)


def lateness_of_sources(model: PipelineModel) -> dict[str, int]:
    """The largest lateness that any operator allows for records of each source, in microseconds."""
    found: dict[str, int] = {}
    for lateness, source, _ in _readings(model):
        found[source] = max(found.get(source, 0), lateness)
    return found


def lateness_of_records(query: Keeper) -> int:
    """How late a record may be for an operator, in microseconds.

    Joins take only records that are on time, so allowed lateness is 0 for anything above a join:
    a join waits for partners by the watermark, and a reference lookup takes no late records.
    """
    if not isinstance(query, WindowAggregate | KeyedAggregate):
        return 0
    joined = any(isinstance(each, Join | ReferenceJoin) for each in relations(query.source))
    return 0 if joined else query.lateness_micros


def readings_through_views(model: PipelineModel) -> Counter[str]:
    """How often each source is read around a view, by a window that allows late records."""
    return Counter(source for _, source, depth in _readings(model) if depth)


def _readings(model: PipelineModel) -> Iterator[tuple[int, str, int]]:
    """For each window that allows late records: its lateness, a source, and the views between."""
    views = {str(view.name): view for view in model.views}
    for view in model.views:
        for _, query in stateful_operators(view):
            lateness = lateness_of_records(query)
            if lateness and isinstance(query, WindowAggregate | KeyedAggregate):
                for source, depth in _records(query.source, views, 0):
                    yield lateness, source, depth


def _records(
    relation: Relation, views: Mapping[str, View], depth: int
) -> Iterator[tuple[str, int]]:
    """The sources whose records reach a relation unaggregated and unjoined, with view depth."""
    match relation:
        case TableInput() if relation.name in views:
            if _hands_on_records(views[relation.name].query, views):
                yield from _records(views[relation.name].query, views, depth + 1)
        case TableInput():
            yield relation.name, depth
        case Select() | ReferenceValue() | Explode():
            yield from _records(relation.source, views, depth)
        case UnionAll():
            for part in relation.parts:
                yield from _records(part, views, depth)
        case _:
            return


def _hands_on_records(query: Relation, views: Mapping[str, View]) -> bool:
    """Whether a view's whole output is records of sources: only then can it be read around."""
    return all(
        isinstance(each, Select | ReferenceValue | UnionAll)
        or (
            isinstance(each, TableInput)
            and (each.name not in views or _hands_on_records(views[each.name].query, views))
        )
        for each in relations(query)
    )

"""Which sources hand on late records, because some window takes them: found out on the driver."""

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
    """How late a record of each source may be so that somebody takes it, in microseconds."""
    found: dict[str, int] = {}
    for lateness, source, _ in _readings(model):
        found[source] = max(found.get(source, 0), lateness)
    return found


def lateness_of_records(query: Keeper) -> int:
    """How late the records may be that an operator takes, in microseconds.

    A join waits for partners by the watermark, and a table is looked up for the records that are on
    time: what is late is late to them, and to what is above them.
    """
    if not isinstance(query, WindowAggregate | KeyedAggregate):
        return 0
    joined = any(isinstance(each, Join | ReferenceJoin) for each in relations(query.source))
    return 0 if joined else query.lateness_micros


def readings_through_views(model: PipelineModel) -> Counter[str]:
    """How often a source is read past a view, by a window that takes what the view does not."""
    return Counter(source for _, source, depth in _readings(model) if depth)


def _readings(model: PipelineModel) -> Iterator[tuple[int, str, int]]:
    """How late, of which source, and through how many views records are taken by windows."""
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
    """The sources whose records come through as they are, not as results of something."""
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
    """Whether all that a view puts out are records: only then is it read past."""
    return all(
        isinstance(each, Select | ReferenceValue | UnionAll)
        or (
            isinstance(each, TableInput)
            and (each.name not in views or _hands_on_records(views[each.name].query, views))
        )
        for each in relations(query)
    )

"""What the queries of a UNION ALL have in common: the first one's names, and event time."""

from __future__ import annotations

from dataclasses import replace

from laminar_dagster.config.model import Aggregation, Projection, Select
from laminar_dagster.config.sql.scope import EventTime, Output

Part = Select | Aggregation


def renamed(query: Part, names: tuple[str, ...]) -> Part:
    """A query under the names of another's columns."""
    if len(names) != len(query.columns):
        return query
    columns = tuple(
        Projection(name, each.sql) for name, each in zip(names, query.columns, strict=True)
    )
    return replace(query, columns=columns)


def common_times(outputs: list[Output]) -> dict[str, EventTime]:
    """The columns that are event time in every query of a union, under the first one's names."""
    found: dict[str, EventTime] = {}
    for position, name in enumerate(outputs[0].columns):
        times = [
            each.times.get(each.columns[position].lower())
            for each in outputs
            if position < len(each.columns)
        ]
        known = [each for each in times if each is not None]
        if len(known) == len(outputs):
            sources = tuple(dict.fromkeys(name for each in known for name in each.sources))
            lengths = {each.window_micros for each in known}
            aligned = all(each.aligned for each in known) and len(lengths) == 1
            found[name.lower()] = EventTime(sources, max(lengths), aligned)
    return found

"""The common columns of the queries of a UNION ALL: names of the first, types, event time."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from laminar_dagster.config.relations import Projection, Select, Stateful
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import SET_OPERATIONS
from laminar_dagster.config.sql.scope import EventTime, Output

Part = Select | Stateful


def refused_set_operation(node: exp.SetOperation) -> Refusal | None:
    """Why a set operation is not supported; None if it is."""
    if not isinstance(node, exp.Union):
        return SET_OPERATIONS[node.key]
    if node.args.get("distinct"):
        return SET_OPERATIONS["distinct"]
    if any(node.args.get(each) for each in ("by_name", "side", "on")):
        return SET_OPERATIONS["by_name"]
    return None


def renamed(query: Part, names: tuple[str, ...]) -> Part:
    """A query with its columns renamed by position."""
    if len(names) != len(query.columns):
        return query
    columns = tuple(
        Projection(name, each.sql) for name, each in zip(names, query.columns, strict=True)
    )
    return replace(query, columns=columns)


def common_types(outputs: list[Output]) -> dict[str, exp.DataType]:
    """The columns that have the same known type in every query of a union."""
    found: dict[str, exp.DataType] = {}
    for position, name in enumerate(outputs[0].columns):
        names = [each.columns[position] for each in outputs if position < len(each.columns)]
        types = [each.types.get(own) for each, own in zip(outputs, names, strict=False)]
        first = types[0]
        if first is not None and all(each == first for each in types):
            found[name] = first
    return found


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
            delay = max(each.delay_micros for each in known)
            found[name.lower()] = EventTime(sources, max(lengths), aligned, delay)
    return found

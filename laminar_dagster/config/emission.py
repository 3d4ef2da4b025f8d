"""What a view puts out: whether ever a key twice, and whether rows that are taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import SinkTable, View
from laminar_dagster.config.relations import (
    Join,
    KeyedAggregate,
    Ranked,
    TableInput,
    WindowAggregate,
)
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.core.ids import OperatorId

_BOUNDS: Final = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class KeyedByWindow:
    """A key that holds the window of a row, and everything that the row is grouped by.

    Attributes:
        column: The column of the key that holds the window's start, or its end.
    """

    operator_id: OperatorId
    column: str
    is_end: bool
    size_micros: int


def keyed_by_window(view: View, key: Iterable[str]) -> KeyedByWindow | None:
    """Why no key of a view is put out twice: a window closes once. None where that may happen.

    Args:
        view: Which view.
        key: Columns of its output.
    """
    query = view.query
    if not isinstance(query, WindowAggregate):
        return None
    held = {each.sql: each.name for each in query.columns if each.name in set(key)}
    # Windows that grow begin alike.
    bounds = _BOUNDS[1:] if query.window.grows else _BOUNDS
    bound = next((each for each in bounds if each in held), None)
    if bound is None or not all(each.name in held for each in query.keys):
        return None
    return KeyedByWindow(
        operator_id=OperatorId(view.name),
        column=held[bound],
        is_end=bound == "window_end",
        size_micros=query.window.size_micros,
    )


def check_sinks(sinks: Iterable[SinkTable], views: Iterable[View], report: Report) -> None:
    """Refuse sinks that append the rows of a view that takes rows back."""
    by_name = {str(each.name): each for each in views}
    for sink in sinks:
        view = by_name.get(str(sink.view))
        if view is None or not _takes_rows_back(view, by_name):
            continue
        if sink.options.get("mode", "append").lower() != "upsert":
            problem = f"view `{view.name}` takes rows back, and sink `{sink.sink_id}` appends"
            hint = "set mode = 'upsert' and a key; or keep a log of it: _weight AS change"
            report.add(str(sink.place), problem, hint)


def _takes_rows_back(view: View, views: Mapping[str, View]) -> bool:
    """Whether ``_weight`` is among its columns because of groups that change."""
    if WEIGHT not in view.columns:
        return False
    for each in relations(view.query):
        if isinstance(each, Ranked):
            return True
        if isinstance(each, KeyedAggregate | Join) and each.emits == "changes":
            return True
        below = views.get(each.name) if isinstance(each, TableInput) else None
        if below is not None and _takes_rows_back(below, views):
            return True
    return False

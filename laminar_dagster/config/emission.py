"""What a view puts out, and what a sink may want of it: keys, columns, rows that are taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from laminar_dagster.config.fingerprint import relations
from laminar_dagster.config.mistakes import Report, listed, nearest
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
# In these a sink names columns of its view, with commas between them, and one in what comes after
# the prefix.
_OPTIONS_OF_COLUMNS: Final = ("key", "key.columns", "value.columns")
_RENAMES: Final = "column."


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
    """Refuse sinks that their view does not suit.

    They name columns that it does not have, or append the rows of one that takes rows back.
    """
    by_name = {str(each.name): each for each in views}
    for sink in sinks:
        view = by_name.get(str(sink.view))
        if view is None:
            continue
        _check_columns(sink, view, report)
        if not _takes_rows_back(view, by_name):
            continue
        if sink.options.get("mode", "append").lower() != "upsert":
            problem = f"view `{view.name}` takes rows back, and sink `{sink.sink_id}` appends"
            hint = "set mode = 'upsert' and a key; or keep a log of it: _weight AS change"
            report.add(str(sink.place), problem, hint)


def _check_columns(sink: SinkTable, view: View, report: Report) -> None:
    """Before an epoch is computed whose rows the sink could not take."""
    columns = [each for each in view.columns if each != WEIGHT]
    for option in _OPTIONS_OF_COLUMNS:
        for name in (each.strip() for each in sink.options.get(option, "").split(",")):
            if name and name not in columns:
                _add_unknown(sink, view, f"`{option}`", name, report)
    folded = {each.casefold() for each in columns}
    for option in sink.options:
        name = option.removeprefix(_RENAMES)
        if name != option and name and name.casefold() not in folded:
            _add_unknown(sink, view, f"`{option}`", name, report)


def _add_unknown(sink: SinkTable, view: View, option: str, name: str, report: Report) -> None:
    hint = nearest(name, view.columns, listed(view.columns, "columns"))
    problem = f"{option} of sink `{sink.sink_id}` names `{name[:80]}`"
    report.add(str(sink.place), f"{problem}, which view `{view.name}` does not have", hint)


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

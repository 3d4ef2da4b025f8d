"""What a view puts out, and what its sinks may want of it: columns, keys, rows for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from laminar_dagster.config.row_key_reader import RowReader
from laminar_dagster.config.row_keys import Rows
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.core.ids import OperatorId

_BOUNDS: Final = ("window_start", "window_end")
# In these a sink names columns of its view, with commas between them, and one in what comes after
# the prefix.
_OPTIONS_OF_COLUMNS: Final = ("key", "key.columns", "value.columns")
_RENAMES: Final = "column."
_PUT_OUT: Final = (
    "put out all that the view groups, ranks or reads its rows by, and make it the key"
)

_REPLACED: Final = (
    "make it the PRIMARY KEY of the source, or have every change come with the row before it"
)


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


def check_columns(sinks: Iterable[SinkTable], views: Iterable[View], report: Report) -> None:
    """Refuse sinks that name columns which their view does not have.

    Before an epoch is computed whose rows the sink could not take.
    """
    by_name = {str(each.name): each for each in views}
    for sink in sinks:
        view = by_name.get(str(sink.view))
        if view is not None:
            _check_columns(sink, view, report)


def check_sinks(
    sinks: Iterable[SinkTable], views: Iterable[View], rows: RowReader, report: Report
) -> Iterator[SinkTable]:
    """Refuse sinks whose rows would overwrite each other, or could not be taken back.

    Args:
        sinks: Of the pipeline.
        views: All of them.
        rows: Says what identifies the rows of a view.
        report: Where mistakes go.

    Yields:
        The sinks, with what is known of their keys.
    """
    by_name = {str(each.name): each for each in views}
    for sink in sinks:
        view = by_name[str(sink.view)]
        of_view = rows.of_view(str(view.name))
        if sink.key:
            yield _with_checked_key(sink, of_view, report)
            continue
        changing = "" if of_view.is_lasting else _why_rows_change(view, by_name, rows)
        if changing:
            problem = (
                f"view `{view.name}` takes rows back, and sink `{sink.sink_id}` appends: {changing}"
            )
            hint = "set mode = 'upsert' and a key; or keep a log of it: _weight AS change"
            report.add(str(sink.place), problem, hint)
        yield sink


def _check_columns(sink: SinkTable, view: View, report: Report) -> None:
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


def _with_checked_key(sink: SinkTable, rows: Rows, report: Report) -> SinkTable:
    if not all(each in rows.columns for each in sink.key):
        # The sink itself says so, with the columns that there are.
        return sink
    if rows.identifies(sink.key):
        return sink
    if rows.is_too_small(sink.key):
        written = ", ".join(sink.key)
        problem = f"rows of view `{sink.view}` would overwrite each other in sink"
        problem += f" `{sink.sink_id}`: `{written}` does not identify them"
        fit = rows.smallest_key(sink.key)
        option = "'key.columns'" if "key.columns" in sink.options else "key"
        hint = f"set {option} = '{', '.join(fit)}'" if fit else _PUT_OUT
        report.add(str(sink.place), problem, hint)
    elif rows.is_replaced:
        problem = f"nobody knows whether `{', '.join(sink.key)}` identifies the rows of view"
        problem += f" `{sink.view}`, and they cannot be counted: one may come in the place of"
        problem += " another that is not taken back"
        report.warn(str(sink.place), problem, _REPLACED)
    # A row that takes the place of another is not told from one that only has its key.
    return replace(sink, counts_rows=not rows.is_replaced)


def _why_rows_change(view: View, views: Mapping[str, View], rows: RowReader) -> str:
    """Why a view takes rows back, for people; empty where only its source may say so."""
    if WEIGHT not in view.columns:
        return ""
    for each in relations(view.query):
        if isinstance(each, Ranked):
            return "a row goes when another takes its place among the first"
        if isinstance(each, KeyedAggregate) and each.emits == "changes":
            return "the row of a group goes when the group changes"
        if isinstance(each, Join) and each.emits == "changes":
            if each.kind not in ("inner", "semi"):
                return (
                    f"a row of the {each.kind.upper()} JOIN that has no partner goes when one"
                    " comes; within an interval of event time it waits instead"
                )
            if not rows.is_lasting(each):
                return "a row goes when one of those that are joined is taken back"
        below = views.get(each.name) if isinstance(each, TableInput) else None
        if below is not None and not rows.of_view(str(below.name)).is_lasting:
            why = _why_rows_change(below, views, rows)
            if why:
                return why
    return ""

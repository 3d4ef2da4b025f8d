"""Checks sinks against the output of their views: columns, keys, and append-only sinks."""

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
# Options of a sink that list columns of its view, separated by commas; and the prefix of options
# that name one column, such as `column.price`.
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
    """A sink's key that contains the window and all GROUP BY keys of a row.

    Attributes:
        column: The column of the key that holds the window's start, or its end.
    """

    operator_id: OperatorId
    column: str
    is_end: bool
    size_micros: int


def keyed_by_window(view: View, key: Iterable[str]) -> KeyedByWindow | None:
    """Proof that a view emits each key only once: it holds the window, which closes once.

    None where a key may be emitted again.

    Args:
        view: The view.
        key: Columns of its output.
    """
    query = view.query
    if not isinstance(query, WindowAggregate):
        return None
    held = {each.sql: each.name for each in query.columns if each.name in set(key)}
    # Growing windows (CUMULATE) share a start, so only their end identifies them.
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

    Otherwise the sink would fail only after an epoch has been computed.
    """
    by_name = {str(each.name): each for each in views}
    for sink in sinks:
        view = by_name.get(str(sink.view))
        if view is not None:
            _check_columns(sink, view, report)


def check_sinks(
    sinks: Iterable[SinkTable], views: Iterable[View], rows: RowReader, report: Report
) -> Iterator[SinkTable]:
    """Refuse sinks whose rows would overwrite each other, or that cannot apply retractions.

    Args:
        sinks: The sinks of the pipeline.
        views: All views.
        rows: Finds the keys of a view's rows.
        report: Where mistakes go.

    Yields:
        The sinks, with ``counts_rows`` set.
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
        # ``check_columns`` reports the unknown column.
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
    # Where rows are replaced without retractions, counting cannot tell a duplicate key from an
    # update.
    return replace(sink, counts_rows=not rows.is_replaced)


def _why_rows_change(view: View, views: Mapping[str, View], rows: RowReader) -> str:
    """Why a view emits retractions, for people; empty if they only come from its source."""
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

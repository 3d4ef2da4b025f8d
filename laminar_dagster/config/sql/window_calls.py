"""``TUMBLE`` and ``HOP``: their arguments, and whether a watermark closes them."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from laminar_dagster.config.mistakes import listed
from laminar_dagster.config.model import Window
from laminar_dagster.config.sql import intervals
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.scope import EventTime, Scope
from laminar_dagster.config.sql.text import quoted

_FORMS: Final = {
    "tumble": "TUMBLE(time, INTERVAL '…')",
    "hop": "HOP(time, slide INTERVAL '…', size INTERVAL '…')",
}


def read_window(call: exp.Expr, name: str, scope: Scope, expressions: Expressions) -> Window | None:
    """A window function's time and lengths; notes what is wrong with them."""
    where, arguments, report = expressions.where(call), call.expressions, expressions.report
    if len(arguments) != (2 if name == "tumble" else 3):
        problem = f"{name.upper()} is called with {len(arguments)} arguments"
        report.add(where, problem, f"write {_FORMS[name]}")
        return None
    time, *lengths = arguments
    if not isinstance(time, exp.Column):
        hint = f"write {_FORMS[name]}"
        report.add(where, f"{name.upper()} needs a column of event time first", hint)
        return None
    expressions.check(time, scope, Clause("GROUP BY"))
    micros: list[int] = []
    for each in lengths:
        try:
            length = intervals.micros(each)
        except intervals.NoInterval as error:
            report.add(where, f"{name.upper()}: {error}")
            return None
        if length == 0:
            report.add(where, f"{name.upper()} with a length of 0 holds nothing")
            return None
        micros.append(length)
    span = expressions.span(time)
    text = expressions.text(span) if span else quoted(time.name)
    return Window(text, size_micros=micros[-1], slide_micros=micros[0])


def check_window(call: exp.Expr, window: Window, scope: Scope, expressions: Expressions) -> None:
    """Note a window that would lose rows, or never close."""
    where = expressions.where(call)
    if window.slide_micros > window.size_micros:
        expressions.report.add(where, "HOP slides further than its size: it would leave out rows")
    elif window.size_micros % window.slide_micros:
        hint = "for example HOP(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"
        expressions.report.add(where, "the size of HOP is no multiple of its slide", hint)
    _check_time(call.expressions[0], window, scope, expressions)


def event_time(node: exp.Expr, scope: Scope) -> EventTime | None:
    """What a column is as event time; None if it is none."""
    if not isinstance(node, exp.Column):
        return None
    parts = parts_of(node)
    found = scope.resolve(parts)
    return scope.time(found[1]) if found and found[0] == len(parts) - 1 else None


def parts_of(node: exp.Column) -> list[str]:
    """The parts of a dotted name."""
    return [each.name for each in node.parts]


def _check_time(node: exp.Expr, window: Window, scope: Scope, expressions: Expressions) -> None:
    if not isinstance(node, exp.Column) or not scope.resolve(parts_of(node)):
        return
    time, where = event_time(node, scope), expressions.where(node)
    if scope.output.unknown:
        return
    if time is None:
        known = [each for each in scope.columns if scope.time(each)]
        hint = listed(known, "event time here") or (
            f"add `WATERMARK FOR {node.name} AS {node.name} - INTERVAL '5' SECOND` to the "
            "source, and pass the column on as it is"
        )
        problem = f"`{node.name}` of {scope.description} is not event time"
        expressions.report.add(where, f"{problem}, so its windows would never close", hint)
    elif time.window_micros and not (
        time.aligned
        and window.size_micros % time.window_micros == 0
        and window.slide_micros % time.window_micros == 0
    ):
        shown = intervals.spelled(time.window_micros)
        hint = "use the column that is its window_end, or a multiple of that length"
        problem = f"`{node.name}` begins a window of {shown}: its rows would come too late"
        expressions.report.add(where, problem, hint)

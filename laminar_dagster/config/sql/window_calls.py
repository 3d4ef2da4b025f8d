"""``TUMBLE``, ``HOP``, ``CUMULATE`` and ``SESSION``: their arguments, checks and event times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from laminar_dagster.config.mistakes import listed
from laminar_dagster.config.relations import Window
from laminar_dagster.config.sql import intervals
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.scope import EventTime, Scope, plain_column
from laminar_dagster.config.sql.text import quoted


@dataclass(frozen=True, slots=True)
class Session:
    """A session window: it ends when a key has had no event for ``gap_micros``."""

    time: str
    gap_micros: int


@dataclass(frozen=True, slots=True)
class _Form:
    """The arguments of a window function: how many lengths, and whether an offset may follow."""

    lengths: int
    takes_offset: bool
    text: str


_FORMS: Final = {
    "tumble": _Form(1, True, "TUMBLE(time, INTERVAL '…')"),
    "hop": _Form(2, True, "HOP(time, slide INTERVAL '…', size INTERVAL '…')"),
    "cumulate": _Form(2, True, "CUMULATE(time, step INTERVAL '…', size INTERVAL '…')"),
    "session": _Form(1, False, "SESSION(time, gap INTERVAL '…')"),
}


def read_window(
    call: exp.Expr, name: str, scope: Scope, expressions: Expressions
) -> Window | Session | None:
    """The window of a window function's call; reports mistakes in its time and lengths."""
    where, arguments, report = expressions.where(call), call.expressions, expressions.report
    form = _FORMS[name]
    given = len(arguments) - 1
    if given != form.lengths and not (form.takes_offset and given == form.lengths + 1):
        problem = f"{name.upper()} is called with {len(arguments)} arguments"
        report.add(where, problem, f"write {form.text}")
        return None
    time, *lengths = arguments
    if not isinstance(time, exp.Column):
        report.add(
            where, f"{name.upper()} needs a column of event time first", f"write {form.text}"
        )
        return None
    expressions.check(time, scope, Clause("GROUP BY"))
    micros: list[int] = []
    for number, each in enumerate(lengths):
        try:
            length = intervals.micros(each)
        except intervals.NoInterval as error:
            report.add(where, f"{name.upper()}: {error}")
            return None
        if length == 0 and number < form.lengths:
            report.add(where, f"{name.upper()} with a length of 0 holds nothing")
            return None
        micros.append(length)
    span = expressions.span(time)
    text = expressions.text(span) if span else quoted(time.name)
    if name == "session":
        return Session(text, micros[0])
    size = micros[form.lengths - 1]
    offset = micros[form.lengths] % size if given > form.lengths else 0
    return Window(text, size, micros[0], offset, name == "cumulate")


def check_window(
    call: exp.Expr,
    window: Window | Session,
    scope: Scope,
    expressions: Expressions,
    lateness_micros: int = 0,
) -> None:
    """Report a window that would lose rows, or never close."""
    where, name = expressions.where(call), "CUMULATE" if _grows(window) else "HOP"
    if isinstance(window, Window) and window.slide_micros > window.size_micros:
        step = "steps" if window.grows else "slides"
        expressions.report.add(
            where, f"{name} {step} further than its size: rows would be left out"
        )
    elif isinstance(window, Window) and window.size_micros % window.slide_micros:
        step = "step" if window.grows else "slide"
        hint = f"for example {name}(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"
        expressions.report.add(where, f"the size of {name} is no multiple of its {step}", hint)
    _check_time(call.expressions[0], window, scope, expressions, lateness_micros)


def edge_times(
    time: EventTime, window: Window | Session, lateness_micros: int = 0
) -> dict[str, EventTime]:
    """The window edges that are event time for the next query, after windows have closed."""
    late = lateness_micros
    found = {"window_end": EventTime(time.sources, delay_micros=late)}
    if isinstance(window, Window):
        is_whole = window.size_micros == window.slide_micros and not window.offset_micros
        found["window_start"] = EventTime(time.sources, window.size_micros, is_whole, late)
    return found


def _grows(window: Window | Session) -> bool:
    return isinstance(window, Window) and window.grows


def event_time(node: exp.Expr, scope: Scope) -> EventTime | None:
    """The event time of a column; None if it is not event time."""
    column = plain_column(node, scope)
    return scope.time(column) if column else None


def parts_of(node: exp.Column) -> list[str]:
    """The parts of a dotted name."""
    return [each.name for each in node.parts]


def _check_time(
    node: exp.Expr,
    window: Window | Session,
    scope: Scope,
    expressions: Expressions,
    lateness_micros: int,
) -> None:
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
    elif time.delay_micros > lateness_micros:
        problem = (
            f"`{node.name}` of {scope.description} waited for a partner, or for late records: it "
            "would come too late"
        )
        needed = f"{time.delay_micros / 1e6:g}s"
        hint = f"hold the windows open as long: EMIT … WITH (allowed.lateness = '{needed}')"
        expressions.report.add(where, problem, hint)
    elif time.window_micros and not (
        time.aligned
        and isinstance(window, Window)
        and window.size_micros % time.window_micros == 0
        and window.slide_micros % time.window_micros == 0
        and window.offset_micros % time.window_micros == 0
    ):
        shown = intervals.spelled(time.window_micros)
        hint = "use the column that is its window_end, or a multiple of that length"
        problem = f"`{node.name}` begins a window of {shown}: its rows would come too late"
        expressions.report.add(where, problem, hint)

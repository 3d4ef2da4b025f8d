"""Reads ``FROM a JOIN b ON …``, and EXISTS and IN in WHERE, into the engine's model.

Two streams are joined in one of three ways: within an interval of event time, within windows, or
with a time to live, in which case the join emits retractions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from sqlglot import exp

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.relations import (
    Join,
    JoinKind,
    JoinSide,
    Relation,
    TableInput,
    Window,
)
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import call_of
from laminar_dagster.config.sql.expressions import Clause
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.join_conditions import (
    Condition,
    ConditionReader,
    all_of,
    time_of_side,
)
from laminar_dagster.config.sql.join_refusals import JOINS, REFERENCES
from laminar_dagster.config.sql.join_scope import LEFT, RIGHT, JoinedScope
from laminar_dagster.config.sql.join_terms import JoinTerms
from laminar_dagster.config.sql.logical_clock import CLOCKS, reads_clock
from laminar_dagster.config.sql.reference_joins import reference_join, refused_inputs
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import RANKS
from laminar_dagster.config.sql.scope import EventTime, Scope
from laminar_dagster.config.sql.text import quoted
from laminar_dagster.config.sql.window_calls import (
    Session,
    check_window,
    edge_times,
    event_time,
    read_window,
)

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader

MAX_JOINS: Final = 8

_PRESERVED: Final[dict[JoinKind, str]] = {
    "inner": LEFT + RIGHT,
    "left": LEFT,
    "semi": LEFT,
    "anti": LEFT,
    "right": RIGHT,
    "full": "",
}


@dataclass(frozen=True, slots=True)
class Input:
    """An item of FROM: its relation and scope, and the window function around it if any."""

    relation: Relation | None
    scope: Scope
    window: exp.Expr | None = None


class JoinReader:
    """Reads one join of a query."""

    def __init__(self, reader: QueryReader, terms: JoinTerms, left: Input, right: Input) -> None:
        """Take the inputs on both sides, and the join's terms."""
        self._reader = reader
        self._terms = terms
        self._left = left
        self._right = right
        self._report = reader.report

    def read(self) -> Input | None:
        """The join as an input of its query; None, and a mistake, if it is refused."""
        kind = self._terms.kind
        if not self._has_sound_inputs():
            return None
        if self._left.scope.output.reference or self._right.scope.output.reference:
            return self._with_table(kind)
        windows = self._windows()
        left, right = (_with_edges(each) for each in (self._left, self._right))
        scope = self._scope(left, right)
        condition = self._condition(scope, is_windowed=windows is not None)
        if condition is None or scope.output.unknown or windows == ():
            return self._broken(scope)
        joined = self._windowed(windows, kind, scope, condition) if windows else None
        joined = joined or (None if windows else self._timed(kind, scope, condition))
        if joined is None:
            return self._broken(scope)
        self._check_rest(joined, condition)
        return Input(joined, scope)

    def _with_table(self, kind: JoinKind) -> Input:
        """A join with a reference table, which needs neither time nor state."""
        left, right = self._left, self._right
        scope = self._scope(left.scope, right.scope)
        has_window = left.window is not None or right.window is not None
        refused = refused_inputs(left.scope, right.scope, has_window=has_window)
        if refused:
            self._refuse(REFERENCES[refused])
            return self._broken(scope)
        condition = self._condition(scope, is_windowed=False)
        table = right.relation
        if condition is None or scope.output.unknown or left.relation is None:
            return self._broken(scope)
        assert isinstance(table, TableInput)
        joined = reference_join(left.relation, table.name, kind, scope, condition)
        if isinstance(joined, Refusal):
            self._refuse(joined)
            return self._broken(scope)
        return Input(joined, scope)

    def _broken(self, scope: JoinedScope) -> Input:
        scope.output = replace(scope.output, unknown=True)
        return Input(None, scope)

    # --- inputs and condition ---------------------------------------------------------------------

    def _has_sound_inputs(self) -> bool:
        before = len(self._report.mistakes)
        # Aliases in a subquery may repeat those of the outer query, and hide them.
        is_subquery = self._terms.is_subquery
        known = {each.lower() for each in self._left.scope.aliases if not is_subquery}
        for each in self._right.scope.aliases:
            if each.lower() in known:
                problem = f"two inputs are called `{each[:80]}`"
                self._report.add(self._terms.where, problem, "give one another name: t AS other")
        for side in (self._left.scope, self._right.scope):
            if side.output.rank:
                self._report.add(self._terms.where, RANKS["limit"].problem, RANKS["limit"].instead)
            lacking = side.output.lacks_retractions
            if lacking:
                problem = f"an update in {side.description} may come without the row before it"
                self._report.add(self._terms.where, problem, f"set {lacking}")
        return len(self._report.mistakes) == before

    def _scope(self, left: Scope, right: Scope) -> JoinedScope:
        """The scope of both sides. A column of USING is one side's; both stay in a FULL JOIN."""
        side = RIGHT if self._terms.kind == "right" else LEFT
        using = self._terms.using if self._terms.kind != "full" else ()
        united = {each.lower(): side for each in using}
        return JoinedScope(left, right, unites=united, is_subquery=self._terms.is_subquery)

    def _condition(self, scope: JoinedScope, *, is_windowed: bool) -> Condition | None:
        terms, expressions = self._terms, self._reader.expressions
        if terms.on is not None and any(terms.on.find_all(exp.NullSafeEQ)):
            self._refuse(JOINS["null_safe"])
            return None
        before = len(self._report.mistakes)
        reader = ConditionReader(scope, expressions, is_windowed=is_windowed)
        for outer, inner in terms.members:
            reader.equate(outer, inner, is_negated=terms.kind == "anti")
        found = reader.read(terms.on)
        for each in terms.listed:
            # In a scope of its own, so that columns used only here are not kept by the join.
            below = JoinedScope(scope.left, scope.right, is_subquery=True)
            expressions.check(each, below, Clause("a subquery"))
        for name in terms.using:
            sides = [self._using(name, side) for side in (scope.left, scope.right)]
            if sides[0] is not None and sides[1] is not None:
                found.keys.append((quoted(sides[0]), quoted(sides[1])))
        return found if len(self._report.mistakes) == before else None

    def _using(self, name: str, scope: Scope) -> str | None:
        found = scope.resolve([name])
        if found is None:
            known = [scope.written(each) for each in scope.columns]
            problem = f"USING: {scope.description} has no column `{name[:80]}`"
            self._report.add(
                self._terms.where, problem, nearest(name, known, listed(known, "columns"))
            )
        return found[1] if found else None

    def _check_rest(self, join: Join, condition: Condition) -> None:
        if join.kind != "inner" and condition.rest:
            self._refuse(JOINS["condition"], condition.rest[0][1])
        for text, where in condition.rest if join.is_weighed else ():
            if reads_clock(text):
                self._refuse(CLOCKS["pairs"], where)

    # --- by windows -------------------------------------------------------------------------------

    def _windows(self) -> tuple[Window, ...] | None:
        """The windows of both sides; None if there are none, empty if they are wrong."""
        calls = [each.window for each in (self._left, self._right)]
        if calls == [None, None]:
            return None
        if None in calls:
            self._refuse(JOINS["one_window"])
            return ()
        found: list[Window] = []
        for call, side in zip(calls, (self._left, self._right), strict=True):
            assert call is not None
            window = read_window(call, call_of(call), side.scope, self._reader.expressions)
            if isinstance(window, Session):
                self._refuse(JOINS["session"])
                return ()
            if window is None:
                return ()
            check_window(call, window, side.scope, self._reader.expressions)
            found.append(window)
        if replace(found[0], time="") != replace(found[1], time=""):
            self._refuse(JOINS["other_window"])
            return ()
        return tuple(found)

    def _windowed(
        self,
        windows: tuple[Window, ...],
        kind: JoinKind,
        scope: JoinedScope,
        condition: Condition,
    ) -> Join | None:
        if len(condition.window_edges) != len(WINDOW_COLUMNS):
            self._refuse(JOINS["edges"])
            return None
        if any(WEIGHT in each.columns for each in (scope.left, scope.right)):
            self._refuse(JOINS["weight"])
            return None
        for each in condition.times:
            condition.compare(each)
        join = self._join(kind, "close", None, scope, condition)
        if join is None:
            return None
        left, right = replace(join.left, window=windows[0]), replace(join.right, window=windows[1])
        times: dict[str, EventTime] = {}
        for prefix, side, window in zip(
            (LEFT, RIGHT), (self._left, self._right), windows, strict=True
        ):
            assert side.window is not None
            time = event_time(side.window.expressions[0], side.scope)
            if time is not None and prefix in _PRESERVED[kind]:
                both = replace(time, sources=self._sources(scope))
                edges = edge_times(both, window)
                times |= {f"{prefix}{name}": each for name, each in edges.items()}
        scope.seen(times, hides_right=kind in ("semi", "anti"), weighs=False)
        return replace(join, left=left, right=right)

    # --- by an interval, or a time to live --------------------------------------------------------

    def _timed(self, kind: JoinKind, scope: JoinedScope, condition: Condition) -> Join | None:
        columns = self._time_columns(scope, condition)
        least, most = condition.bounds(columns) if columns else (None, None)
        if least is not None and most is not None:
            return self._within(kind, "once", (least, most), columns, scope, condition)
        emit = self._reader.emit
        if emit is None or not emit.changes:
            has_none = least is None and most is None
            self._refuse(JOINS["endless" if has_none else "half"])
            return None
        if emit.ttl_micros is None and not emit.is_unbounded:
            self._refuse(JOINS["ttl"])
            return None
        if emit.ttl_micros is None:
            for each in condition.times if columns else ():
                if (each.left, each.right) == columns:
                    condition.compare(each)
            return self._within(kind, "changes", None, None, scope, condition)
        if columns is None:
            self._refuse(JOINS["clock"], emit.ttl_where)
            return None
        reach = emit.ttl_micros - 1
        bounds = (
            max(-reach, -reach if least is None else least),
            min(reach, reach if most is None else most),
        )
        return self._within(kind, "changes", bounds, columns, scope, condition)

    def _time_columns(self, scope: JoinedScope, condition: Condition) -> tuple[str, str] | None:
        """The columns of event time that the sides are joined by; None if a side has none."""
        if condition.times:
            return condition.times[0].left, condition.times[0].right
        left, right = time_of_side(scope.left), time_of_side(scope.right)
        return (left[0], right[0]) if left and right else None

    def _within(
        self,
        kind: JoinKind,
        emits: Literal["once", "changes"],
        bounds: tuple[int, int] | None,
        columns: tuple[str, str] | None,
        scope: JoinedScope,
        condition: Condition,
    ) -> Join | None:
        join = self._join(kind, emits, bounds, scope, condition)
        if join is None:
            return None
        times: dict[str, EventTime] = {}
        if bounds is not None and columns is not None:
            scope.left.keep(columns[0])
            scope.right.keep(columns[1])
            lags = [_lag(scope.left, columns[0]), _lag(scope.right, columns[1])]
            sides = (
                replace(join.left, time=quoted(columns[0]), lag_micros=lags[0]),
                replace(join.right, time=quoted(columns[1]), lag_micros=lags[1]),
            )
            join = replace(join, left=sides[0], right=sides[1])
            for side, column, delay in zip((LEFT, RIGHT), columns, join.waits, strict=True):
                if side in _PRESERVED[kind]:
                    time = EventTime(self._sources(scope), delay_micros=delay)
                    times[f"{side}{column}".lower()] = time
        scope.seen(times, hides_right=kind in ("semi", "anti"), weighs=join.is_weighed)
        return join

    def _join(
        self,
        kind: JoinKind,
        emits: Literal["once", "changes", "close"],
        bounds: tuple[int, int] | None,
        scope: JoinedScope,
        condition: Condition,
    ) -> Join | None:
        if not condition.keys:
            self._refuse(JOINS["keys"])
            return None
        sides = []
        for number, (prefix, side) in enumerate(((LEFT, scope.left), (RIGHT, scope.right))):
            read = (self._left, self._right)[number].relation
            if read is None:
                return None
            alone = condition.alone[prefix]
            compared = [(each.left, each.right)[number] for each in condition.compared]
            sides.append(
                JoinSide(
                    source=read,
                    columns=(),
                    keys=tuple(each[number] for each in condition.keys),
                    operands=tuple(compared),
                    where=all_of(alone),
                    weight=WEIGHT if WEIGHT in side.columns else None,
                )
            )
        return Join(
            sides[0],
            sides[1],
            kind,
            emits,
            bounds,
            tuple(each.operator for each in condition.compared),
            all_of([text for text, _ in condition.rest]),
        )

    def _sources(self, scope: JoinedScope) -> tuple[str, ...]:
        times = [*scope.left.output.times.values(), *scope.right.output.times.values()]
        return tuple(dict.fromkeys(name for each in times for name in each.sources))

    def _refuse(self, refused: Refusal, where: str = "") -> None:
        self._report.add(where or self._terms.where, refused.problem, refused.instead)


def _with_edges(side: Input) -> Scope:
    """The scope of a side, with the edges of its window as columns."""
    if side.window is None:
        return side.scope
    columns = (*side.scope.columns, *WINDOW_COLUMNS)
    scope = side.scope
    return Scope(scope.alias, replace(scope.output, columns=columns), scope.description)


def _lag(scope: Scope, column: str) -> int:
    time = scope.time(column)
    return time.lag_micros if time else 0

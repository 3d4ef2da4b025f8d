"""Splits ON into equalities, bounds between two event times, comparisons, and other conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from laminar_dagster.config.relations import ComparisonOperator
from laminar_dagster.config.sql import intervals
from laminar_dagster.config.sql.dialect import bare
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.join_refusals import SUBQUERIES
from laminar_dagster.config.sql.join_scope import LEFT, RIGHT, JoinedScope
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import EventTime, Scope, plain_column

_ON: Final = Clause("ON")
_OPERATORS: Final[dict[type[exp.Expr], ComparisonOperator]] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NEQ: "<>",
}
_TURNED: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "<>": "<>",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of an expression of the left with one of the right; both as Spark SQL."""

    left: str
    operator: ComparisonOperator
    right: str


@dataclass(frozen=True, slots=True)
class Apart:
    """By how much the time of the right may differ from that of the left, in microseconds.

    Attributes:
        left: The column of the left.
        right: The column of the right.
        least: None if there is no lower bound.
        most: None if there is no upper bound.
        otherwise: The same condition as a comparison, or as two equal keys, for a join by other
            columns of event time, or by none.
    """

    left: str
    right: str
    least: int | None
    most: int | None
    otherwise: Compared | tuple[str, str]


@dataclass
class Condition:
    """The parts of an ON.

    Attributes:
        keys: Expressions that are equal: one of the left, and one of the right.
        times: Bounds between columns of event time.
        compared: Other comparisons of the left with the right.
        alone: Conditions on rows of one side, by side.
        rest: Any other conditions over both sides, each with its place.
        window_edges: The edges of windows that are equal on both sides.
    """

    keys: list[tuple[str, str]] = field(default_factory=list)
    times: list[Apart] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    alone: dict[str, list[str]] = field(default_factory=lambda: {LEFT: [], RIGHT: []})
    rest: list[tuple[str, str]] = field(default_factory=list)
    window_edges: set[str] = field(default_factory=set)

    def bounds(self, columns: tuple[str, str]) -> tuple[int | None, int | None]:
        """The bounds between two columns of event time; turns those of others into comparisons."""
        least: int | None = None
        most: int | None = None
        for each in self.times:
            if (each.left, each.right) != columns:
                self.compare(each)
                continue
            if each.least is not None:
                least = each.least if least is None else max(least, each.least)
            if each.most is not None:
                most = each.most if most is None else min(most, each.most)
        return least, most

    def compare(self, apart: Apart) -> None:
        """Turn a bound between times into a plain comparison or equality."""
        if isinstance(apart.otherwise, Compared):
            self.compared.append(apart.otherwise)
        else:
            self.keys.append(apart.otherwise)


@dataclass(frozen=True, slots=True)
class _Moment:
    column: str
    offset: int


class ConditionReader:
    """Reads the ON of one join."""

    def __init__(self, scope: JoinedScope, expressions: Expressions, *, is_windowed: bool) -> None:
        """Take both inputs; ``is_windowed`` if they are windows of event time."""
        self._scope = scope
        self._expressions = expressions
        self._is_windowed = is_windowed
        self._found = Condition()

    def read(self, tree: exp.Expr | None) -> Condition:
        """Split a condition; notes what is wrong with it."""
        for each in conjuncts(tree) if tree is not None else ():
            # Without parentheses, in which an equality would not be recognised.
            self._conjunct(bare(each))
        return self._found

    def equate(self, outer: exp.Expr, inner: exp.Expr, *, is_negated: bool) -> None:
        """Add the equality of IN: an expression of the left with the subquery's column."""
        outer, inner = bare(outer), bare(inner)
        sides = self._sides(inner)
        if None in sides:
            self._expressions.check(inner, self._scope, _ON)
        elif sides != {RIGHT} or not any(outer.find_all(exp.Column)):
            self._refuse(inner, SUBQUERIES["sides"])
        elif is_negated and not self._are_required(outer, inner):
            self._refuse(inner, SUBQUERIES["not_in"])
        else:
            self._match(outer, inner)

    def _are_required(self, outer: exp.Expr, inner: exp.Expr) -> bool:
        """Whether neither can be NULL: with NULLs NOT IN is unknown, unlike an anti join."""
        return all(
            scope.output.unknown or plain_column(node, scope) in scope.output.required
            for node, scope in ((outer, self._scope.left), (inner, self._scope.right))
        )

    def _conjunct(self, node: exp.Expr) -> None:
        sides = self._sides(node)
        if self._is_windowed and self._names_edge_otherwise(node):
            where, hint = self._expressions.where(node), "say l.window_end = r.window_end"
            self._expressions.report.add(where, "ON takes the edges of windows as equal only", hint)
            return
        if None in sides:
            # A column is unknown or ambiguous; this check reports it.
            self._expressions.check(node, self._scope, _ON)
            return
        if len(sides) == 1:
            (side,) = sides
            assert side is not None
            self._found.alone[side].append(self._text(node, self._of(side)))
            return
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            self._pair(node.this, ">=", node.args["low"], node)
            self._pair(node.this, "<=", node.args["high"], node)
        elif isinstance(node, exp.EQ):
            self._equal(node)
        elif type(node) in _OPERATORS and isinstance(node, exp.Binary):
            self._pair(node.left, _OPERATORS[type(node)], node.right, node)
        else:
            self._rest(node)

    def _names_edge_otherwise(self, node: exp.Expr) -> bool:
        is_equality = isinstance(node, exp.EQ) and _is_edge(node.left) and _is_edge(node.right)
        return not is_equality and any(map(_is_edge, node.find_all(exp.Column)))

    def _equal(self, node: exp.EQ) -> None:
        left, right = node.left, node.right
        if self._sides(left) == {RIGHT}:
            left, right = right, left
        if self._sides(left) != {LEFT} or self._sides(right) != {RIGHT}:
            self._rest(node)
            return
        self._match(left, right)

    def _match(self, left: exp.Expr, right: exp.Expr) -> None:
        """Add an equality: of window edges, of event times, or of keys."""
        left, right = bare(left), bare(right)
        if self._is_windowed and _is_edge(left) and left.name.lower() == right.name.lower():
            self._found.window_edges.add(left.name.lower())
            return
        scopes = self._scope.left, self._scope.right
        moments = self._moment(left, scopes[0]), self._moment(right, scopes[1])
        texts = self._text(left, scopes[0]), self._text(right, scopes[1])
        if moments[0] and moments[1]:
            apart = moments[0].offset - moments[1].offset
            self._found.times.append(
                Apart(moments[0].column, moments[1].column, apart, apart, texts)
            )
        else:
            self._found.keys.append(texts)

    def _pair(
        self, one: exp.Expr, operator: ComparisonOperator, other: exp.Expr, whole: exp.Expr
    ) -> None:
        """Add a comparison between both sides: as a bound if both are event times."""
        one, other = bare(one), bare(other)
        sides = self._sides(one), self._sides(other)
        if sides == ({RIGHT}, {LEFT}):
            one, operator, other = other, _TURNED[operator], one
        elif sides != ({LEFT}, {RIGHT}):
            self._rest(whole)
            return
        scopes = self._scope.left, self._scope.right
        left, right = self._moment(one, scopes[0]), self._moment(other, scopes[1])
        texts = self._text(one, scopes[0]), self._text(other, scopes[1])
        compared = Compared(texts[0], operator, texts[1])
        if left is None or right is None or operator == "<>":
            self._found.compared.append(compared)
            return
        # left + a < right + b means right - left > a - b.
        apart = left.offset - right.offset
        strict = operator in ("<", ">")
        least = apart + strict if operator in ("<", "<=") else None
        most = apart - strict if operator in (">", ">=") else None
        self._found.times.append(Apart(left.column, right.column, least, most, compared))

    def _rest(self, node: exp.Expr) -> None:
        text = self._text(node, self._scope)
        if all(each[0] != text for each in self._found.rest):
            self._found.rest.append((text, self._expressions.where(node)))

    def _moment(self, node: exp.Expr, scope: Scope) -> _Moment | None:
        """A column of event time with an offset; None if the expression is something else."""
        node = bare(node)
        match node:
            case exp.Column():
                column = plain_column(node, scope)
                return _Moment(column, 0) if column and scope.time(column) else None
            case exp.Add() | exp.Sub():
                found, length = self._moment(node.left, scope), _length(node.right)
                if found is None or length is None:
                    return None
                sign = 1 if isinstance(node, exp.Add) else -1
                return _Moment(found.column, found.offset + sign * length)
        return None

    def _sides(self, node: exp.Expr) -> set[str | None]:
        """The sides whose columns an expression mentions; with None if a column is ambiguous."""
        columns = node.find_all(exp.Column)
        return {self._scope.side_of([part.name for part in each.parts]) for each in columns}

    def _of(self, side: str) -> Scope:
        return self._scope.left if side == LEFT else self._scope.right

    def _refuse(self, node: exp.Expr, refused: Refusal) -> None:
        self._expressions.report.add(
            self._expressions.where(node), refused.problem, refused.instead
        )

    def _text(self, node: exp.Expr, scope: Scope) -> str:
        self._expressions.check(node, scope, _ON)
        span = self._expressions.span(node)
        if span is None:
            self._expressions.report.add(self._expressions.where(node), "ON cannot be read here")
            return "NULL"
        return self._expressions.text(span)


def time_of_side(scope: Scope) -> tuple[str, EventTime] | None:
    """The column of event time by which a side is joined: the one with the smallest lag."""
    known = [(name, time) for name in scope.columns if (time := scope.time(name)) is not None]
    return min(known, key=lambda each: each[1].lag_micros, default=None)


def conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of the ANDs of a condition."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.right, node.left]
        elif isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Paren):
            stack.append(node.this)
        else:
            yield node


def all_of(conditions: list[str]) -> str | None:
    """Conditions as one, in Spark SQL; None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " AND ".join(f"({each})" for each in conditions)


def _length(node: exp.Expr) -> int | None:
    try:
        return intervals.micros(bare(node))
    except intervals.NoInterval:
        return None


def _is_edge(node: exp.Expr) -> bool:
    node = bare(node)
    return isinstance(node, exp.Column) and node.name.lower() in WINDOW_COLUMNS

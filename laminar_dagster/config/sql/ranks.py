"""``ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n``: the first rows of each key.

The limit is in a query around it, ``WHERE rn <= n``, or in QUALIFY. The query around still applies
its whole WHERE. QUALIFY is not evaluated, only its limit is read, so it must not contain anything
else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from laminar_dagster.config.aggregate import Ordering
from laminar_dagster.config.relations import Projection, Ranked, Relation
from laminar_dagster.config.sql import changelog
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.column_types import known, type_of
from laminar_dagster.config.sql.dialect import call_of
from laminar_dagster.config.sql.expressions import Clause
from laminar_dagster.config.sql.join_conditions import conjuncts
from laminar_dagster.config.sql.lifetimes import check_keys, clock_of
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import ENDLESS, RANKS
from laminar_dagster.config.sql.scope import BROKEN, Output, Scope, Star, plain_column

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader


def row_number_of(node: exp.Select) -> exp.Expr | None:
    """The ROW_NUMBER of a query, in SELECT or QUALIFY; None if it has none."""
    every = [part for each in node.expressions for part in (each, *each.iter_expressions())]
    qualify = node.args.get("qualify")
    every += qualify.find_all(exp.Window) if qualify is not None else ()
    return next((part for part in every if _is_row_number(part)), None)


def _is_row_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window) and call_of(node.this) == "row_number"


def _limits(condition: exp.Expr) -> list[tuple[exp.Expr, int]]:
    """The expressions that a condition limits by a number, each with the rank it allows at most."""
    return [limit for each in conjuncts(condition) if (limit := _limit(each.unnest())) is not None]


def _limit(condition: exp.Expr) -> tuple[exp.Expr, int] | None:
    if not isinstance(condition, exp.EQ | exp.LTE | exp.LT):
        return None
    number, limit = condition.left.unnest(), condition.right
    is_number = isinstance(limit, exp.Literal) and limit.name.isdigit() and len(limit.name) < 10
    found = int(limit.name) if is_number else 0
    if isinstance(condition, exp.EQ):
        found = found if found == 1 else 0
    elif isinstance(condition, exp.LT):
        found -= 1
    return (number, found) if found > 0 else None


def limited(reader: QueryReader, node: exp.Select, relation: Relation, scope: Scope) -> Relation:
    """A ranked relation with the limit that the query around it sets in WHERE."""
    clause, rank = node.args.get("where"), scope.output.rank.lower()
    limits = _limits(clause.this) if clause is not None else ()
    limit = next((most for each, most in limits if plain_column(each, scope).lower() == rank), 0)
    if not limit or not isinstance(relation, Ranked):
        refused = RANKS["limit"]
        reader.report.add(reader.expressions.where(node), refused.problem, refused.instead)
        return relation
    return replace(relation, limit=limit)


class RankReader:
    """Reads one SELECT with a ROW_NUMBER."""

    def __init__(
        self, reader: QueryReader, node: exp.Select, relation: Relation, scope: Scope
    ) -> None:
        """Take the query and its input."""
        self._reader = reader
        self._node = node
        self._relation = relation
        self._scope = scope
        self._expressions = reader.expressions
        self._report = reader.report

    def read(self, window: exp.Expr) -> tuple[Ranked | None, Output]:
        """The ranked rows. Without QUALIFY the limit is 0, and the query around has to set it."""
        emit = self._reader.emit
        if emit is None or not emit.changes:
            return self._refuse(window, ENDLESS["rank"])
        condition = self._reader.where_clause(self._node, self._scope)
        keys = self._keys(window)
        order = self._order(window)
        if window.args.get("spec") or window.args.get("alias") or not order:
            return self._refuse(window, RANKS["spec"])
        columns, rank, types = self._columns()
        if keys:
            check_keys(emit, self._report)
        qualify = self._node.args.get("qualify")
        limit = self._qualified(qualify.this, window, rank) if qualify is not None else 0
        if limit is None:
            return None, BROKEN
        if not limit and (rank is None or qualify is not None):
            return self._refuse(window, RANKS["limit"])
        query = Ranked(
            self._relation,
            tuple(Projection(f"_k{number}", text) for number, text in enumerate(keys)),
            order,
            limit,
            rank,
            tuple(columns),
            clock_of(emit, self._scope, self._report),
            emit.ttl_micros,
            condition,
            changelog.weight_of(self._node, self._scope, self._expressions),
        )
        names = [each.name for each in columns] + ([rank] if rank is not None else [])
        self._reader.check_duplicates(names, self._node)
        unlimited = "" if limit else rank or ""
        return query, Output((*names, WEIGHT), rank=unlimited, types=known(types))

    def _qualified(self, condition: exp.Expr, window: exp.Expr, rank: str | None) -> int | None:
        """The limit in QUALIFY, 0 if it has none; None if it was refused."""
        for number, limit in _limits(condition):
            name = number.name if isinstance(number, exp.Column) and len(number.parts) == 1 else ""
            is_named = rank is not None and name.lower() == rank.lower()
            if not is_named and not _is_row_number(number):
                continue
            if len([*conjuncts(condition)]) > 1:
                self._refuse(condition, RANKS["beside"])
                return None
            if not is_named and number is not window and not self._is_same(number, window):
                self._refuse(number, RANKS["another"])
                return None
            if is_named and self._scope.resolve([name]) and not self._scope.output.unknown:
                problem = f"`{name}` is both a column of the input and a column of SELECT"
                hint = "give the column of SELECT another name"
                self._report.add(self._expressions.where(number), problem, hint)
                return None
            return limit
        return 0

    def _is_same(self, one: exp.Expr, other: exp.Expr) -> bool:
        """Whether two ROW_NUMBERs have the same keys and order, however they are written."""
        ones, others = (
            (self._keys(each), self._order(each), each.args.get("spec"), each.args.get("alias"))
            for each in (one, other)
        )
        return ones == others

    def _keys(self, window: exp.Expr) -> list[str]:
        return [self._text(each) for each in window.args.get("partition_by") or ()]

    def _columns(
        self,
    ) -> tuple[list[Projection], str | None, dict[str, exp.DataType | None]]:
        columns: list[Projection] = []
        types: dict[str, exp.DataType | None] = {}
        rank: str | None = None
        for each in self._reader.items(self._node, self._scope):
            if isinstance(each, Star):
                # `_weight` is not a column of ranked rows: it marks retractions of the input.
                columns += [Projection(each.name, each.sql)] if each.name != WEIGHT else []
                types[each.name] = self._scope.output.types.get(each.origin)
            elif rank is None and _is_row_number(each.node):
                rank = each.name
            else:
                self._expressions.check(each.node, self._scope, Clause("SELECT"))
                columns.append(Projection(each.name, self._expressions.text(each.span)))
                types[each.name] = type_of(each.node, self._scope)
        return columns, rank, types

    def _order(self, window: exp.Expr) -> tuple[Ordering, ...]:
        order = window.args.get("order")
        return tuple(
            Ordering(
                self._text(each.this),
                bool(each.args.get("desc")),
                bool(each.args.get("nulls_first")),
            )
            for each in (order.expressions if order is not None else ())
        )

    def _text(self, node: exp.Expr) -> str:
        self._expressions.check(node, self._scope, Clause("OVER"))
        span = self._expressions.span(node)
        return self._expressions.text(span) if span else "NULL"

    def _refuse(self, node: exp.Expr, refused: Refusal) -> tuple[None, Output]:
        self._report.add(self._expressions.where(node), refused.problem, refused.instead)
        return None, BROKEN

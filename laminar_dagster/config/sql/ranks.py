"""``ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n``: the first rows of each key.

It is a column of a query of its own, and the query around it says ``WHERE rn <= n``; or it stands
in QUALIFY.
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
from laminar_dagster.config.sql.lifetimes import check_keys, clock_of
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import ENDLESS, RANKS
from laminar_dagster.config.sql.scope import BROKEN, Output, Scope, Star

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader


def row_number_of(node: exp.Select) -> exp.Expr | None:
    """The ROW_NUMBER of a query, in SELECT or QUALIFY; None if it has none."""
    qualify = node.args.get("qualify")
    parts = [*node.expressions, *([qualify.this] if qualify is not None else [])]
    every = (part for each in parts for part in (each, *each.iter_expressions()))
    return next((part for part in every if _is_row_number(part)), None)


def _is_row_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window) and call_of(node.this) == "row_number"


def limit_in(condition: exp.Expr | None, name: str) -> int:
    """How many rows of each key a condition leaves, by a column of row numbers; 0 if all."""
    if isinstance(condition, exp.Paren):
        return limit_in(condition.this, name)
    if isinstance(condition, exp.And):
        return limit_in(condition.left, name) or limit_in(condition.right, name)
    is_number = isinstance(condition, exp.EQ | exp.LTE | exp.LT)
    if not is_number or not isinstance(condition, exp.Binary):
        return 0
    number, limit = condition.left, condition.right
    is_ours = _is_row_number(number) and not name
    if isinstance(number, exp.Column):
        is_ours = number.name.lower() == name.lower()
    if not is_ours or not isinstance(limit, exp.Literal) or not limit.name.isdigit():
        return 0
    found = int(limit.name[:9])
    if isinstance(condition, exp.EQ):
        return found if found == 1 else 0
    return found - 1 if isinstance(condition, exp.LT) else found


def limited(reader: QueryReader, node: exp.Select, relation: Relation, scope: Scope) -> Relation:
    """Rows with numbers, of which the query around them says how many it wants."""
    clause = node.args.get("where")
    limit = limit_in(clause.this if clause is not None else None, scope.output.rank)
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
        """The rows with their numbers. How many are wanted may be for the query around to say."""
        emit = self._reader.emit
        if emit is None or not emit.changes:
            return self._refuse(window, ENDLESS["rank"])
        condition = self._reader.where_clause(self._node, self._scope)
        keys = [self._text(each) for each in window.args.get("partition_by") or ()]
        order = self._order(window)
        if window.args.get("spec") or not order:
            return self._refuse(window, RANKS["spec"])
        columns, rank, types = self._columns()
        if keys:
            check_keys(emit, self._report)
        qualify = self._node.args.get("qualify")
        limit = limit_in(qualify.this, rank or "") if qualify is not None else 0
        if qualify is not None and not limit:
            limit = limit_in(qualify.this, "")
        if (qualify is not None or rank is None) and not limit:
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

    def _columns(
        self,
    ) -> tuple[list[Projection], str | None, dict[str, exp.DataType | None]]:
        columns: list[Projection] = []
        types: dict[str, exp.DataType | None] = {}
        rank: str | None = None
        for each in self._reader.items(self._node, self._scope):
            if isinstance(each, Star):
                # The weight of a row is what takes it back, and no column of it.
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

    def _refuse(self, window: exp.Expr, refused: Refusal) -> tuple[None, Output]:
        self._report.add(self._expressions.where(window), refused.problem, refused.instead)
        return None, BROKEN

"""``WHERE EXISTS (SELECT …)`` and ``WHERE x IN (SELECT …)``, which are semi and anti joins.

They are supported as operands of AND in WHERE. The WHERE of the subquery becomes the join's ON; IN
adds an equality.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from laminar_dagster.config.relations import JoinKind
from laminar_dagster.config.sql.join_conditions import conjuncts
from laminar_dagster.config.sql.join_refusals import SUBQUERIES
from laminar_dagster.config.sql.join_terms import JoinTerms
from laminar_dagster.config.sql.refusal import Refusal

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader

_TAKEN: Final = {"expressions", "from_", "where", "distinct"}


def without_subqueries(
    node: exp.Select, reader: QueryReader
) -> tuple[exp.Select, tuple[JoinTerms, ...]]:
    """A query without the EXISTS and IN among the ANDs of its WHERE, and these as joins."""
    clause = node.args.get("where")
    parts = list(conjuncts(clause.this)) if clause is not None else []
    if not any(map(_query_in, parts)):
        return node, ()
    rest: list[exp.Expr] = []
    terms: list[JoinTerms] = []
    for each in parts:
        query = _query_in(each)
        if query is None:
            rest.append(each.copy())
            continue
        found = _terms(each, query, reader)
        if isinstance(found, Refusal):
            reader.report.add(reader.expressions.where(query), found.problem, found.instead)
        else:
            terms.append(found)
    left = node.copy()
    left.set("where", exp.Where(this=reduce(_both, rest)) if rest else None)
    return left, tuple(terms)


def _both(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    return exp.And(this=one, expression=other)


def _terms(condition: exp.Expr, query: exp.Expr, reader: QueryReader) -> JoinTerms | Refusal:
    bare, is_negated = _bare(condition)
    where = reader.expressions.where(condition)
    if not isinstance(query, exp.Select) or not _is_plain(query):
        return SUBQUERIES["shape"]
    kind: JoinKind = "anti" if is_negated else "semi"
    table, clause = query.args["from_"].this, query.args.get("where")
    on = clause.this if clause is not None else None
    columns = tuple(each.unalias() for each in query.expressions)
    if isinstance(bare, exp.Exists):
        listed = tuple(each for each in columns if not _is_star(each))
        if on is None:
            return SUBQUERIES["alone"]
        return JoinTerms(kind, table, where, on, listed=listed, is_subquery=True)
    compared = bare.this.expressions if isinstance(bare.this, exp.Tuple) else [bare.this]
    if len(compared) != len(columns) or any(map(_is_star, columns)):
        return SUBQUERIES["width"]
    members = tuple(zip(compared, columns, strict=True))
    return JoinTerms(kind, table, where, on, members=members, is_subquery=True)


def _query_in(condition: exp.Expr) -> exp.Expr | None:
    """The subquery of an EXISTS or IN; None for any other condition."""
    bare, _ = _bare(condition)
    query: exp.Expr | None = None
    if isinstance(bare, exp.Exists):
        query = bare.this
    elif isinstance(bare, exp.In):
        query = bare.args.get("query")
    while isinstance(query, exp.Subquery) and _has_only(query, {"this"}):
        query = query.this
    return query


def _bare(condition: exp.Expr) -> tuple[exp.Expr, bool]:
    """A condition without its NOTs and parentheses, and whether it is negated."""
    is_negated = False
    while isinstance(condition, exp.Not | exp.Paren):
        is_negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    return condition, is_negated


def _is_plain(query: exp.Select) -> bool:
    distinct = query.args.get("distinct")
    is_plain_distinct = distinct is None or not distinct.args.get("on")
    return is_plain_distinct and _has_only(query, _TAKEN) and bool(query.args.get("from_"))


def _has_only(node: exp.Expr, taken: set[str]) -> bool:
    return not any(value for key, value in node.args.items() if key not in taken)


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star)

"""The terms of a join beside its left input, whether written as a JOIN or in WHERE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from laminar_dagster.config.relations import JoinKind
from laminar_dagster.config.sql.dialect import bare, span_of
from laminar_dagster.config.sql.join_refusals import JOINS
from laminar_dagster.config.sql.refusal import Refusal

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader


@dataclass(frozen=True, slots=True)
class JoinTerms:
    """The terms of one join.

    Attributes:
        table: The right input, an item of FROM.
        where: The place of the join, for errors.
        on: The condition for a pair; None if there is only ``using`` or ``members``.
        using: Columns of both sides that are equal.
        members: The equalities of ``IN (SELECT …)``: outer expression and subquery's column.
        listed: The SELECT list of EXISTS, which is only checked.
        is_subquery: It is a condition of WHERE, in which names of both sides mean the right.
    """

    kind: JoinKind
    table: exp.Expr
    where: str
    on: exp.Expr | None = None
    using: tuple[str, ...] = ()
    members: tuple[tuple[exp.Expr, exp.Expr], ...] = ()
    listed: tuple[exp.Expr, ...] = ()
    is_subquery: bool = False


def terms_of(node: exp.Join, reader: QueryReader) -> JoinTerms | None:
    """The terms of a JOIN; None, and a mistake, if there is no such join."""
    where = _place(reader, node)
    kind = _kind(node)
    if isinstance(kind, Refusal):
        reader.report.add(where, kind.problem, kind.instead)
        return None
    using = tuple(each.name for each in node.args.get("using") or ())
    return JoinTerms(kind, node.this, where, node.args.get("on"), using)


def _kind(node: exp.Join) -> JoinKind | Refusal:
    side = str(node.args.get("side") or "").upper()
    kind = str(node.args.get("kind") or "").upper()
    method = str(node.args.get("method") or "").lower()
    if method:
        return JOINS.get(method, JOINS["natural"])
    on = node.args.get("on")
    is_bare = on is None and not node.args.get("using")
    if kind == "CROSS" or is_bare or (on is not None and isinstance(bare(on), exp.Boolean)):
        return JOINS["cross"]
    if kind in ("SEMI", "ANTI"):
        if side == "RIGHT":
            return JOINS["right_semi"]
        return "semi" if kind == "SEMI" else "anti"
    kinds: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
    return kinds.get(side, "inner")


def _place(reader: QueryReader, node: exp.Join) -> str:
    """The place of a join's keyword JOIN, or of its comma."""
    span = span_of(node.this)
    if span is None:
        return reader.expressions.where(node)
    words = (TokenType.JOIN, TokenType.COMMA)
    at = span[0]
    while at > 0 and reader.statement.tokens[at].token_type not in words:
        at -= 1
    return reader.statement.where(at)

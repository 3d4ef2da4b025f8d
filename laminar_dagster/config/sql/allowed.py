"""The kinds of nodes that an expression may consist of."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from laminar_dagster.config.sql.join_refusals import SUBQUERIES
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.refusals import EXPRESSIONS

# Calls are checked by their names.
ALLOWED: Final[tuple[type[exp.Expr], ...]] = (
    exp.Add,
    exp.And,
    exp.Anonymous,
    exp.Between,
    exp.BitwiseAnd,
    exp.BitwiseLeftShift,
    exp.BitwiseNot,
    exp.BitwiseOr,
    exp.BitwiseRightShift,
    exp.BitwiseXor,
    exp.Boolean,
    exp.Bracket,
    exp.Case,
    exp.Cast,
    exp.Collate,
    exp.Column,
    exp.ColumnDef,
    exp.Concat,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.DataType,
    exp.DataTypeParam,
    exp.Div,
    exp.Dot,
    exp.DPipe,
    exp.EQ,
    exp.Escape,
    exp.Extract,
    exp.Filter,
    exp.GT,
    exp.GTE,
    exp.HexString,
    exp.ILike,
    exp.Identifier,
    exp.If,
    exp.In,
    exp.IntDiv,
    exp.Interval,
    exp.IntervalSpan,
    exp.Is,
    exp.Kwarg,
    exp.LT,
    exp.LTE,
    exp.Lambda,
    exp.Like,
    exp.Literal,
    exp.Mod,
    exp.Mul,
    exp.NEQ,
    exp.National,
    exp.Neg,
    exp.Not,
    exp.Null,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Or,
    exp.Overlay,
    exp.Paren,
    exp.RawString,
    exp.RegexpLike,
    exp.SessionUser,
    exp.StrPosition,
    exp.Sub,
    exp.Substring,
    exp.Trim,
    exp.TryCast,
    exp.Tuple,
    exp.Var,
)


def unsupported(node: exp.Expr) -> Refusal | None:
    """Why a node is not allowed in an expression; None if it is."""
    kind = type(node)
    if isinstance(node, (exp.Any, exp.All)) and isinstance(node.parent, (exp.Like, exp.ILike)):
        return None
    if isinstance(node, exp.In) and node.args.get("query"):
        return SUBQUERIES["in"]
    if kind in EXPRESSIONS:
        return EXPRESSIONS[kind]
    if kind in ALLOWED:
        return None
    return Refusal(f"{node.key.upper()} in an expression")

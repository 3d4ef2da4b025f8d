"""What SQL has and a pipeline does not take, by the name a user knows it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import TokenType, exp

_ONE_INPUT: Final = "one query reads one source or view"

# Of a SELECT, by sqlglot's name for the clause: what it is, its keyword, what to do instead.
CLAUSES: Final[Mapping[str, tuple[str, tuple[TokenType, ...], str]]] = {
    "with_": ("WITH (a common table expression)", (TokenType.WITH,), "make it a view of its own"),
    "distinct": (
        "SELECT DISTINCT",
        (TokenType.DISTINCT,),
        "group by the columns and a window of time",
    ),
    "joins": ("JOIN", (TokenType.JOIN, TokenType.COMMA), _ONE_INPUT),
    "laterals": ("LATERAL VIEW", (TokenType.LATERAL,), "one row in gives at most one row out"),
    "order": ("ORDER BY", (TokenType.ORDER_BY,), "order the rows when you read the sink"),
    "sort": ("SORT BY", (TokenType.SORT_BY,), "order the rows when you read the sink"),
    "cluster": ("CLUSTER BY", (TokenType.CLUSTER_BY,), ""),
    "distribute": ("DISTRIBUTE BY", (TokenType.DISTRIBUTE_BY,), ""),
    "limit": ("LIMIT", (TokenType.LIMIT, TokenType.FETCH), "a stream has no first rows"),
    "offset": ("OFFSET", (TokenType.OFFSET,), "a stream has no first rows"),
    "qualify": ("QUALIFY", (TokenType.QUALIFY,), "use HAVING over TUMBLE or HOP"),
    "windows": ("WINDOW", (TokenType.WINDOW,), "use TUMBLE or HOP in GROUP BY"),
    "pivots": ("PIVOT", (TokenType.PIVOT, TokenType.UNPIVOT), ""),
    "sample": ("TABLESAMPLE", (TokenType.TABLE_SAMPLE,), "filter by xxhash64() of a column"),
    "hint": ("a hint", (TokenType.HINT,), "set it under `spark` in pipeline.yml"),
    "match": ("MATCH_RECOGNIZE", (TokenType.MATCH_RECOGNIZE,), ""),
    "into": ("INTO", (TokenType.INTO,), "use CREATE SINK"),
    "kind": ("SELECT AS STRUCT", (TokenType.STRUCT,), "use struct(…)"),
    "exclude": ("SELECT * EXCEPT", (TokenType.EXCEPT,), "list the columns"),
    "operation_modifiers": ("a modifier of SELECT", (), ""),
    "partition": ("PARTITION", (TokenType.PARTITION,), ""),
    "version": ("a version of a table", (), ""),
    "when": ("a version of a table", (), ""),
    "system_time": ("a version of a table", (), ""),
}

GROUPINGS: Final[Mapping[str, tuple[str, tuple[TokenType, ...]]]] = {
    "grouping_sets": ("GROUPING SETS", (TokenType.GROUPING_SETS,)),
    "groupingsets": ("GROUPING SETS", (TokenType.GROUPING_SETS,)),
    "cube": ("CUBE", (TokenType.CUBE,)),
    "rollup": ("ROLLUP", (TokenType.ROLLUP,)),
    "totals": ("WITH TOTALS", (TokenType.WITH,)),
    "all": ("GROUP BY ALL", (TokenType.ALL,)),
}

# In an expression: what it is, and what to do instead.
EXPRESSIONS: Final[Mapping[type[exp.Expr], tuple[str, str]]] = {
    exp.Cube: ("CUBE", "list the columns"),
    exp.Rollup: ("ROLLUP", "list the columns"),
    exp.GroupingSets: ("GROUPING SETS", "list the columns"),
    exp.Window: ("OVER", "use GROUP BY TUMBLE(…) or HOP(…)"),
    exp.Select: ("a subquery in an expression", _ONE_INPUT),
    exp.Subquery: ("a subquery in an expression", _ONE_INPUT),
    exp.Union: ("a subquery in an expression", _ONE_INPUT),
    exp.Exists: ("EXISTS with a subquery", _ONE_INPUT),
    exp.Distinct: ("DISTINCT inside an aggregate", "group by it in a view before"),
    exp.Filter: ("FILTER (WHERE …)", "aggregate a CASE WHEN … THEN … END"),
    exp.WithinGroup: ("WITHIN GROUP", ""),
    exp.IgnoreNulls: ("IGNORE NULLS", ""),
    exp.RespectNulls: ("RESPECT NULLS", ""),
    exp.Order: ("ORDER BY inside a function", ""),
    exp.Ordered: ("ORDER BY inside a function", ""),
    exp.Limit: ("LIMIT inside a function", ""),
    exp.Star: ("* outside COUNT(*) and SELECT *", "list the columns"),
    exp.Placeholder: ("a parameter", "write the value; ${NAME} works in WITH (…) alone"),
    exp.Parameter: ("a parameter", "write the value; ${NAME} works in WITH (…) alone"),
    exp.SessionParameter: ("a parameter", "write the value"),
    exp.Any: ("ANY", "write a LIKE ANY ('…', '…'), or any other condition with OR"),
    exp.All: ("ALL", "write the conditions with AND"),
    exp.AtTimeZone: ("AT TIME ZONE", "use from_utc_timestamp(ts, 'zone')"),
    exp.PropertyEQ: (":=", ""),
    exp.JSONExtract: ("extraction by : or ->", "use get_json_object(column, '$.path')"),
}

# What an expression may consist of. Calls are checked by their names.
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


def unsupported(node: exp.Expr) -> tuple[str, str] | None:
    """The name of a part that an expression may not have, and what to do; None if it may."""
    kind = type(node)
    if isinstance(node, (exp.Any, exp.All)) and isinstance(node.parent, (exp.Like, exp.ILike)):
        return None
    if kind in EXPRESSIONS:
        return EXPRESSIONS[kind]
    if kind in ALLOWED:
        return None
    return (f"{node.key.upper()} in an expression", "")

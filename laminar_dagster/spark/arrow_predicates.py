"""Filters that Arrow evaluates exactly as Spark would, so that records need not go to Spark first.

A small part of SQL: comparisons of an integer, string or boolean column with a literal,
``IS NULL``, ``IN``, ``AND``, ``OR``, ``NOT``. Everything else is left to Spark: floats
(SQL's NaN is larger than everything), decimals, dates, functions, arithmetic, casts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from laminar_dagster.spark.early_partials import Predicate

_COMPARISONS: Final[Mapping[type[exp.Expr], tuple[str, str]]] = {
    # The Arrow function, and the one to use with the sides swapped.
    exp.EQ: ("equal", "equal"),
    exp.NEQ: ("not_equal", "not_equal"),
    exp.LT: ("less", "greater"),
    exp.LTE: ("less_equal", "greater_equal"),
    exp.GT: ("greater", "less"),
    exp.GTE: ("greater_equal", "less_equal"),
}
_INT64: Final = range(-(2**63), 2**63)


def column_name(sql: str, schema: pa.Schema) -> str | None:
    """The name of the column, if an expression is just a column; None otherwise."""
    try:
        return _column(sqlglot.parse_one(sql, dialect="spark"), schema)
    except sqlglot.ParseError:
        return None


def predicate(sql: str, schema: pa.Schema) -> Predicate | None:
    """The filter as a function of Arrow; None for one that only Spark can evaluate."""
    try:
        return _predicate(sqlglot.parse_one(sql, dialect="spark"), schema)
    except sqlglot.ParseError:
        return None


def _predicate(tree: exp.Expr, schema: pa.Schema) -> Predicate | None:
    match tree:
        case exp.Paren():
            return _predicate(tree.this, schema)
        case exp.Not():
            inner = _predicate(tree.this, schema)
            return (lambda rows: pc.invert(inner(rows))) if inner else None
        case exp.And() | exp.Or():
            left, right = _predicate(tree.left, schema), _predicate(tree.right, schema)
            if left is None or right is None:
                return None
            join = pc.and_kleene if isinstance(tree, exp.And) else pc.or_kleene
            return lambda rows: join(left(rows), right(rows))
        case exp.Is() if isinstance(tree.expression, exp.Null):
            name = _column(tree.this, schema)
            return (lambda rows: pc.is_null(rows.column(name))) if name else None
        case exp.In():
            return _membership(tree, schema)
        case exp.Column():
            name = _column(tree, schema)
            if name and pa.types.is_boolean(schema.field(name).type):
                return lambda rows: rows.column(name)
            return None
        case _:
            return _comparison(tree, schema)


def _comparison(tree: exp.Expr, schema: pa.Schema) -> Predicate | None:
    functions = _COMPARISONS.get(type(tree))
    if functions is None or not isinstance(tree, exp.Binary):
        return None
    for one, other, function in zip(
        (tree.left, tree.right), (tree.right, tree.left), functions, strict=True
    ):
        name = _column(one, schema)
        value = _literal(other, schema.field(name).type) if name else None
        if name and value is not None:
            return lambda rows: pc.call_function(function, [rows.column(name), value])
    return None


def _membership(tree: exp.In, schema: pa.Schema) -> Predicate | None:
    name = _column(tree.this, schema)
    if name is None or not tree.expressions or tree.args.get("query"):
        return None
    values = [_literal(each, schema.field(name).type) for each in tree.expressions]
    if any(value is None for value in values):
        return None
    known = pa.array([value.as_py() for value in values], values[0].type)

    def is_among(rows: Any) -> Any:
        column = rows.column(name)
        found = pc.is_in(column, known)
        # In SQL `NULL IN (...)` is NULL; Arrow's is_in says false.
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    return is_among


def _column(tree: exp.Expr, schema: pa.Schema) -> str | None:
    if not isinstance(tree, exp.Column) or tree.table:
        return None
    wanted = tree.name.lower()
    return next((name for name in schema.names if name.lower() == wanted), None)


def _literal(tree: exp.Expr, kind: pa.DataType) -> Any:
    """The literal as a scalar to compare a column with; None where Spark would convert."""
    match tree:
        case exp.Neg() if pa.types.is_integer(kind):
            value = _literal(tree.this, kind)
            return None if value is None else pa.scalar(-value.as_py(), pa.int64())
        case exp.Literal() if tree.is_string and pa.types.is_string(kind):
            return pa.scalar(tree.this, pa.string())
        case exp.Literal() if tree.is_int and pa.types.is_integer(kind):
            value = int(tree.this)
            return pa.scalar(value, pa.int64()) if value in _INT64 else None
        case exp.Boolean() if pa.types.is_boolean(kind):
            return pa.scalar(bool(tree.this))
        case _:
            return None

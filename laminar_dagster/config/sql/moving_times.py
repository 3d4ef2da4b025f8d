"""Finds strings that Spark reads as the wall clock: ``'now'``, ``'today'`` and the like.

Spark replaces such a constant by the time of planning wherever it converts it to a date or
timestamp: by CAST, and by implicit casts, as in ``ts < 'now'``. Beside text and numbers it stays
text; where a type is not known, a conversion is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sqlglot import exp

from laminar_dagster.config.determinism import is_moving_time
from laminar_dagster.config.sql.column_types import results_of, type_of
from laminar_dagster.config.sql.dialect import call_of
from laminar_dagster.config.sql.functions import aggregate_within
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text_functions import GIVES_NO_TEXT, MAKES_TEXT, TAKES_TEXT

_TEXTS: Final = (exp.Literal, exp.RawString, exp.National)
# Expressions that may compute a string from constants.
_COMPUTED: Final = (
    exp.Anonymous,
    exp.Bracket,
    exp.Case,
    exp.Cast,
    exp.Concat,
    exp.DPipe,
    exp.Dot,
    exp.Overlay,
    exp.Substring,
    exp.Trim,
)
_COMPARED: Final = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Add,
    exp.Sub,
)
_TIMES: Final = frozenset(
    exp.DataType.build(each, dialect="spark").this
    for each in ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
)
_NO_TIMES: Final = frozenset(
    {
        *exp.DataType.TEXT_TYPES,
        *exp.DataType.NUMERIC_TYPES,
        exp.DType.ARRAY,
        exp.DType.BINARY,
        exp.DType.BOOLEAN,
        exp.DType.MAP,
        exp.DType.STRUCT,
    }
)
# Functions that convert their arguments to a common type.
_ALIKE: Final = frozenset(
    "array coalesce decode equal_null greatest if ifnull least map nullif nvl nvl2".split()
)


def moving_times(tree: exp.Expr, scope: Scope) -> Iterator[exp.Expr]:
    """The constants of an expression by which Spark may read the wall clock."""
    if scope.output.unknown:
        return
    # Without recursion: a long chain of ANDs is a deep tree.
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.DataType | exp.Interval | exp.Query | exp.Column):
            continue
        if node is not tree and _is_taken_for_clock(node, scope):
            yield node
        stack.extend(node.iter_expressions(reverse=True))


def _is_taken_for_clock(node: exp.Expr, scope: Scope) -> bool:
    """Whether a node may be the string ``now``, where Spark may convert it to a time."""
    text = _written(node)
    if text is not None:
        is_one = not isinstance(node, exp.Paren) and is_moving_time(text)
        return is_one and _may_become_time(node, scope)
    # `_may_move` goes last: it walks the whole tree below.
    is_text = isinstance(node, _COMPUTED) and call_of(node) not in GIVES_NO_TEXT
    return is_text and _may_become_time(node, scope) and _may_move(node)


def _may_move(node: exp.Expr) -> bool:
    """Whether a computed expression may be a constant string such as ``now``."""
    if isinstance(node, exp.Cast):
        written = _written(node.this)
        if not _is_cast_to(node, exp.DataType.TEXT_TYPES):
            return False
        if written is not None:
            return is_moving_time(written)
    return _is_constant(node) and any(map(_holds_text, node.walk()))


def _written(node: exp.Expr) -> str | None:
    """The value of a string literal; None for anything else."""
    if isinstance(node, exp.Paren):
        return _written(node.this)
    if isinstance(node, exp.Concat) and not call_of(node):
        # Adjacent literals are one string: 'n' 'ow'.
        parts = [_written(each) for each in node.expressions]
        return "".join(each or "" for each in parts) if None not in parts else None
    is_written = isinstance(node, _TEXTS) and (node.is_string or not isinstance(node, exp.Literal))
    return node.name if is_written else None


def _holds_text(node: exp.Expr) -> bool:
    is_given = _written(node) is not None or isinstance(node, exp.HexString)
    return is_given or call_of(node) in MAKES_TEXT


def _is_constant(node: exp.Expr) -> bool:
    """Whether a node mentions no column, and no parameter of a lambda around it."""
    if any(isinstance(each, exp.Column) for each in node.walk()):
        return False
    known: set[str] = set()
    around = node.parent
    while around is not None:
        if isinstance(around, exp.Lambda):
            known |= {each.name.lower() for each in around.expressions}
        around = around.parent
    return not any(each.name.lower() in known for each in node.find_all(exp.Identifier))


def _may_become_time(node: exp.Expr, scope: Scope) -> bool:
    """Whether Spark may convert a node, which is text, to a date or timestamp."""
    parent = node.parent
    match parent:
        case exp.Paren():
            return _may_become_time(parent, scope)
        case exp.Cast():
            return _is_cast_to(parent, _TIMES)
        case exp.Between() | exp.In():
            return _may_be_times(parent.iter_expressions(), node, scope)
        case exp.Case():
            is_compared = parent.this is node
            beside = [each.this for each in parent.args["ifs"]]
            return _may_be_times(beside if is_compared else results_of(parent), node, scope)
        case exp.If() if isinstance(parent.parent, exp.Case):
            case = parent.parent
            is_compared = parent.this is node
            beside = [case.this] if is_compared and case.this else results_of(case)
            return _may_be_times(beside, node, scope)
        case exp.Extract():
            return True
        case exp.Bracket() if parent.this is not node:
            kind = type_of(parent.this, scope)
            key = kind.expressions[0] if kind is not None and kind.expressions else None
            return not isinstance(key, exp.DataType) or key.this in _TIMES
        case exp.Kwarg():
            return _may_become_time(parent, scope)
        case exp.Anonymous():
            return _is_taken_for_time(parent, node, scope)
        case _:
            operands = parent.iter_expressions() if isinstance(parent, _COMPARED) else ()
            return _may_be_times(operands, node, scope)


def _is_taken_for_time(call: exp.Expr, node: exp.Expr, scope: Scope) -> bool:
    """Whether a function may convert a string argument to a time."""
    name = call_of(call)
    if name in TAKES_TEXT or aggregate_within(call):
        return False
    return name not in _ALIKE or _may_be_times(_alike(call, node), node, scope)


def _alike(call: exp.Expr, node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call that are converted to a common type with one of them."""
    given = call.expressions
    place = next(number for number, each in enumerate(given) if each is node)
    match call_of(call):
        case "if" | "nvl2":
            return given[1:] if place else given[:1]
        case "map":
            return given[place % 2 :: 2]
        case "decode":
            results = [*given[2::2], *(given[-1:] if len(given) % 2 == 0 else ())]
            is_result = any(each is node for each in results)
            return results if is_result else [given[0], *given[1 : len(given) - 1 : 2]]
        case _:
            return given


def _may_be_times(parts: Iterable[exp.Expr], node: exp.Expr, scope: Scope) -> bool:
    """Whether an operand beside a string may be a time, or an interval, so Spark converts it."""
    return any(_may_be_time(each, scope) for each in parts if each is not node)


def _may_be_time(node: exp.Expr, scope: Scope) -> bool:
    if isinstance(node, exp.Null | exp.Boolean | exp.Literal):
        return False
    kind = type_of(node, scope)
    return kind is None or kind.this not in _NO_TIMES


def _is_cast_to(node: exp.Cast, kinds: frozenset[exp.DType] | set[exp.DType]) -> bool:
    to = node.args.get("to")
    return isinstance(to, exp.DataType) and to.this in kinds

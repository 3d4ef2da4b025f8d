"""Derives rules about rows from conditions and expressions of SQL; see ``row_keys``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from laminar_dagster.config.determinism import MOVING_TIMES, RANDOM, SIDE_EFFECT, WALL_CLOCK
from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.row_keys import NOTHING, Attributes, Certainty, Rows, Rule
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import call_of, parse_expression
from laminar_dagster.config.sql.functions import LOGICAL_CLOCK
from laminar_dagster.config.sql.join_conditions import conjuncts
from laminar_dagster.config.sql.text import SqlText

# Functions whose results may differ for equal arguments.
_MOVING: Final = WALL_CLOCK | RANDOM | SIDE_EFFECT | MOVING_TIMES
_UNEQUAL: Final = _MOVING | {LOGICAL_CLOCK, "unix_timestamp", "aes_encrypt"}
_WORD: Final = re.compile(r"\w+")
_EXACT: Final = re.compile(r"[0-9.]+")
_COMPARISONS: Final = (exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_NUMBERS: Final = (*_WHOLE, "integer", "long", "short", "byte", "decimal")
# Spark casts a string literal to such a type before comparing, so it equals one value only.
_READ_FROM_TEXT: Final = ("string", "date", "timestamp")
# Types whose distinct values have distinct text: a cast to string keeps them apart.
_TOLD_BY_TEXT: Final = (*_NUMBERS, "string", "date", "timestamp", "boolean")


def equality(one: int, other: int, certainty: Certainty) -> Iterator[Rule]:
    """Rules that two attributes determine each other."""
    yield Rule(frozenset({one}), frozenset({other}), certainty)
    yield Rule(frozenset({other}), frozenset({one}), certainty)


def rules_of(node: exp.Expr, rows: Rows) -> Iterator[Rule]:
    """The rules that hold for rows that meet a condition, one operand of AND."""
    if isinstance(node, _COMPARISONS) and not _may_be_boolean(node, rows):
        return
    if isinstance(node, exp.Not) and isinstance(node.this.unnest(), exp.Is | exp.In | exp.Between):
        return
    single = _chosen_value(node, rows)
    if single is not None:
        yield Rule(NOTHING, frozenset({single}), Certainty.ALWAYS)
        return
    if isinstance(node, exp.EQ):
        one, other = plain_column(node.left.unnest(), rows), plain_column(node.right.unnest(), rows)
        if one is not None and other is not None:
            # Across types equality is no proof: 1 equals both '1' and '01', which differ.
            kind = rows.types.get(one)
            is_same = kind is not None and kind == rows.types.get(other)
            yield from equality(one, other, Certainty.ALWAYS if is_same else Certainty.POSSIBLE)
            return
    mentioned = frozenset(
        found
        for each in node.find_all(exp.Column)
        if (found := rows.find(each.parts[0].name)) is not None
    )
    yield Rule(NOTHING, mentioned, Certainty.POSSIBLE)


def _chosen_value(node: exp.Expr, rows: Rows) -> int | None:
    """The attribute that a condition certainly restricts to a single value."""
    inner = node.this.unnest() if isinstance(node, exp.Not) else node
    plain = plain_column(inner, rows)
    if plain is not None:
        return plain if rows.types.get(plain) == "boolean" else None
    if not isinstance(inner, exp.EQ | exp.NEQ | exp.Is | exp.NullSafeEQ):
        return None
    sides = inner.left.unnest(), inner.right.unnest()
    for column, value in (sides, sides[::-1]):
        attribute = plain_column(column, rows)
        if attribute is None:
            continue
        kind = rows.types.get(attribute, "")
        if isinstance(value, exp.Null) and isinstance(node, exp.Is | exp.NullSafeEQ):
            return attribute
        if isinstance(value, exp.Boolean) and kind == "boolean":
            # NOT (x <=> true) leaves two values: false and null.
            return None if isinstance(inner, exp.NullSafeEQ) and inner is not node else attribute
        if isinstance(value, exp.Literal) and isinstance(node, exp.EQ):
            return attribute if _is_one_value(value, kind) else None
    return None


def _may_be_boolean(node: exp.Binary, rows: Rows) -> bool:
    """Whether an operand may be boolean, so that even ``<>`` leaves a single value."""
    columns = (plain_column(each.unnest(), rows) for each in (node.left, node.right))
    return any(
        each is not None and rows.types.get(each, "boolean") == "boolean" for each in columns
    )


def _is_one_value(literal: exp.Expr, kind: str) -> bool:
    """Whether at most one value of a type is equal to a literal."""
    if literal.is_string:
        return kind.startswith(_READ_FROM_TEXT)
    # A number with an exponent is a float, which is equal to many large whole numbers.
    return kind.startswith(_NUMBERS) and _EXACT.fullmatch(literal.name) is not None


def chooses_arrivals(where: str | None) -> bool:
    """Whether a condition leaves only rows of weight 1, so no retractions."""
    tree = expression_tree(where) if where else None
    for each in conjuncts(tree) if tree is not None else ():
        node = each.unnest()
        if isinstance(node, exp.EQ):
            column, number = node.left.unnest(), node.right.unnest()
            if isinstance(column, exp.Column) and column.name.lower() == WEIGHT:
                return isinstance(number, exp.Literal) and number.name == "1"
    return False


def expression_tree(text: str) -> exp.Expr | None:
    """Parse an expression of the model; None if it cannot be parsed."""
    report = Report()
    for statement in SqlText("", text).statements(report):
        try:
            return parse_expression(statement.tokens, text).unnest()
        except Exception:
            # sqlglot raises errors of many types on invalid SQL.
            return None
    return None


def is_name(text: str) -> bool:
    """Whether an expression is a single word, which is a column if there is one of that name."""
    return _WORD.fullmatch(text) is not None and text.lower() not in _UNEQUAL


def plain_column(tree: exp.Expr | None, rows: Rows) -> int | None:
    """The attribute that an expression is, if it is nothing but a column."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return rows.find(tree.name)
    return None


def used_columns(tree: exp.Expr | None, text: str, rows: Rows) -> Attributes | None:
    """The columns an expression is computed from; None if they do not determine its value."""
    if tree is None or not _UNEQUAL.isdisjoint(words_of(text)):
        return None
    found: set[int] = set()
    for each in tree.find_all(exp.Column):
        attribute = rows.find(each.parts[0].name)
        if attribute is None:
            # The parameter of a lambda, perhaps.
            return None
        found.add(attribute)
    return frozenset(found)


def told_column(tree: exp.Expr | None, rows: Rows) -> tuple[int, str] | None:
    """The attribute that an expression determines in turn (a one-to-one cast), and its new type."""
    if tree is not None and call_of(tree) == "unix_micros":
        times = [plain_column(each, rows) for each in tree.iter_expressions()]
        is_time = times and times[0] is not None and rows.types.get(times[0]) == "timestamp"
        return (times[0], "bigint") if is_time and times[0] is not None else None
    if not isinstance(tree, exp.Cast | exp.TryCast):
        return None
    column, to = plain_column(tree.this.unnest(), rows), tree.args.get("to")
    kind = rows.types.get(column, "") if column is not None else ""
    target = to.sql("spark").lower() if isinstance(to, exp.DataType) else ""
    is_text = target == "string" and kind.startswith(_TOLD_BY_TEXT)
    is_wider = kind in _WHOLE and target in _WHOLE[_WHOLE.index(kind) :]
    return (column, target) if column is not None and (is_text or is_wider) else None


def words_of(text: str) -> frozenset[str]:
    """The names and keywords of a text of SQL, in lower case."""
    return frozenset(_WORD.findall(text.lower()))

"""The types of expressions, as far as they are known without Spark.

Known are those of columns that a source or a reference table declares, of their fields and items,
and of text. An unknown type is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, Protocol

from sqlglot import exp

from laminar_dagster.config.sql.dialect import call_of
from laminar_dagster.config.sql.functions import aggregate_within
from laminar_dagster.config.sql.scope import Scope
from laminar_dagster.config.sql.text_functions import GIVES_TEXT

_TEXT: Final = exp.DataType.build("STRING", dialect="spark")
_LISTS: Final = frozenset({"transform", "filter", "exists", "forall", "array_sort"})
_MAPS: Final = frozenset({"map_filter", "transform_keys", "transform_values"})
# Aggregates that return one of their input values, and so have its type.
_CHOOSING: Final = frozenset(
    {"any_value", "first", "last", "max", "max_by", "min", "min_by", "mode"}
)


class _Column(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


def declared_types(columns: Iterable[_Column]) -> Mapping[str, exp.DataType]:
    """The types of columns, by their names."""
    return {each.name: _declared(each.type) for each in columns}


@cache
def _declared(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="spark")


def is_text(node: exp.Expr, scope: Scope) -> bool:
    """Whether an expression is known to be text; NULL counts, as it fits every type."""
    if isinstance(node, exp.Null):
        return True
    kind = type_of(node, scope)
    return kind is not None and kind.this in exp.DataType.TEXT_TYPES


def type_of(node: exp.Expr, scope: Scope) -> exp.DataType | None:
    """The type of an expression over an input; None if it is not known."""
    match node:
        case exp.Paren() | exp.Filter() | exp.WithinGroup():
            return type_of(node.this, scope)
        case exp.Literal():
            return _TEXT if node.is_string else None
        case exp.RawString() | exp.National() | exp.Collate() | exp.Substring() | exp.Trim():
            return _TEXT
        case exp.Concat():
            return _TEXT if any(is_text(each, scope) for each in node.expressions) else None
        case exp.DPipe():
            return _TEXT if any(is_text(each, scope) for each in _joined(node)) else None
        case exp.Cast():
            to = node.args.get("to")
            return to if isinstance(to, exp.DataType) else None
        case exp.Column():
            return _of_column(node, scope)
        case exp.Identifier():
            return _of_parameter(node, scope)
        case exp.Dot():
            return _field(type_of(node.this, scope), node.expression.name)
        case exp.Bracket():
            return item_of(type_of(node.this, scope))
        case exp.Case():
            return _TEXT if are_text(results_of(node), scope) else None
        case exp.Anonymous():
            return _of_call(node, scope)
        case _:
            return None


def known(types: Mapping[str, exp.DataType | None]) -> dict[str, exp.DataType]:
    """The types that are known."""
    return {name: kind for name, kind in types.items() if kind is not None}


def are_text(nodes: Sequence[exp.Expr], scope: Scope) -> bool:
    """Whether all of several expressions are known to be text."""
    return bool(nodes) and all(is_text(each, scope) for each in nodes)


def _joined(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of ``||``. Without recursion: a long chain of them is a deep tree."""
    while isinstance(node, exp.DPipe):
        yield node.right
        node = node.left
    yield node


def results_of(node: exp.Case) -> list[exp.Expr]:
    """The result expressions of a CASE."""
    default = node.args.get("default")
    found = [each.args["true"] for each in node.args.get("ifs") or ()]
    return [*found, *([default] if default is not None else [])]


def item_of(kind: exp.DataType | None) -> exp.DataType | None:
    """The type of an item of a list, or of a value of a map."""
    if kind is None or kind.this not in (exp.DataType.Type.ARRAY, exp.DataType.Type.MAP):
        return None
    last = kind.expressions[-1] if kind.expressions else None
    return last if isinstance(last, exp.DataType) else None


def _of_column(node: exp.Column, scope: Scope) -> exp.DataType | None:
    parts = [each.name for each in node.parts]
    found = scope.resolve(parts)
    if found is None:
        return None
    kind = scope.output.types.get(found[1])
    for name in parts[found[0] + 1 :]:
        kind = _field(kind, name)
    return kind


def _field(kind: exp.DataType | None, name: str) -> exp.DataType | None:
    for each in kind.expressions if kind is not None else ():
        if isinstance(each, exp.ColumnDef) and each.name.lower() == name.lower():
            found = each.args.get("kind")
            return found if isinstance(found, exp.DataType) else None
    return None


def _of_parameter(node: exp.Identifier, scope: Scope) -> exp.DataType | None:
    """The type of a lambda's parameter: that of an item of the list or map it is applied to."""
    around = node.parent
    while around is not None:
        if isinstance(around, exp.Lambda):
            names = [each.name.lower() for each in around.expressions]
            if node.name.lower() in names:
                return _of_argument(around, names.index(node.name.lower()), scope)
        around = around.parent
    return None


def _of_argument(node: exp.Lambda, place: int, scope: Scope) -> exp.DataType | None:
    call = node.parent
    if call is None or not call.expressions:
        return None
    through = type_of(call.expressions[0], scope)
    if call_of(call) in _LISTS:
        is_item = place == 0 or call_of(call) == "array_sort"
        return item_of(through) if is_item else None
    if call_of(call) in _MAPS and through is not None and len(through.expressions) == 2:
        kind = through.expressions[place]
        return kind if isinstance(kind, exp.DataType) else None
    return None


def _of_call(node: exp.Anonymous, scope: Scope) -> exp.DataType | None:
    name, given = call_of(node), node.expressions
    if name in GIVES_TEXT or aggregate_within(node) == "string_agg":
        return _TEXT
    if name in ("element_at", "try_element_at", "get") and given:
        return item_of(type_of(given[0], scope))
    if name == "split":
        return _declared("array<string>")
    if aggregate_within(node) in _CHOOSING:
        return type_of(given[0], scope) if given else None
    chosen = given[1:] if name in ("if", "nvl2") else given
    if name in ("coalesce", "if", "ifnull", "nullif", "nvl", "nvl2", "greatest", "least"):
        return _TEXT if are_text(chosen, scope) else None
    return None

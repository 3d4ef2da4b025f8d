"""``(SELECT max(x) FROM reference_table)``: one value of a whole table, beside every row.

The epoch's plan pins a snapshot of the table, so there is one value for an epoch. Only an aggregate
without groups is accepted: it returns exactly one row, whatever the table holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.relations import ReferenceValue
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.dialect import Span, span_of
from laminar_dagster.config.sql.expressions import Clause
from laminar_dagster.config.sql.functions import aggregate_of
from laminar_dagster.config.sql.join_refusals import REFERENCES, SCALARS
from laminar_dagster.config.sql.joins import Input
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import Output, Scope

if TYPE_CHECKING:
    from laminar_dagster.config.sql.queries import QueryReader

# Aggregates that do not depend on the order of rows. Sums of floats do in their last digits, but
# there the rows always come in the same order.
_AGGREGATES: Final = frozenset(
    {"avg", "bool_and", "bool_or", "count", "count_if", "max", "median", "min", "sum"}
)
_TAKEN: Final = {"expressions", "from_", "where"}


def with_values(
    reader: QueryReader, node: exp.Select, read: Input, *, is_plain: bool
) -> Input | None:
    """An input with a column for every scalar subquery of its query; None, and mistakes, if wrong.

    Args:
        reader: The reader of the query.
        node: The query, without the subqueries that are joins.
        read: The input of the query.
        is_plain: It has neither groups nor row numbers, so SELECT is over the input's columns.
    """
    clause = node.args.get("where")
    parts = [clause.this] if clause is not None else []
    parts += node.expressions if is_plain else []
    relation, known = read.relation, dict[tuple[str, str, str | None], str]()
    assert relation is not None
    is_sound = True
    for each in (found for part in parts for found in _scalars(part)):
        value = _Reader(reader, each, read.scope).read()
        if value is None:
            is_sound = False
            continue
        table, (text, where), span = value
        name = known.setdefault((table, text, where), f"_v{len(known)}")
        reader.expressions.values[span] = name
    for (table, text, where), name in known.items():
        relation = ReferenceValue(relation, table, text, where, name)
    return Input(relation, read.scope, read.window) if is_sound else None


def _scalars(part: exp.Expr) -> Iterator[exp.Subquery]:
    """The scalar subqueries of an expression, without those nested in them."""
    # Without recursion: a long chain of ANDs is a deep tree.
    stack = [part]
    while stack:
        node = stack.pop()
        is_joined = isinstance(node.parent, exp.In) and node.arg_key == "query"
        if isinstance(node, exp.Subquery) and not is_joined:
            yield node
        elif not isinstance(node, exp.Exists | exp.Query):
            stack.extend(node.iter_expressions(reverse=True))


class _Reader:
    """Reads one scalar subquery."""

    def __init__(self, reader: QueryReader, node: exp.Subquery, around: Scope) -> None:
        self._reader = reader
        self._node = node
        self._around = around

    def read(self) -> tuple[str, tuple[str, str | None], Span] | None:
        """The table, the value and its WHERE, and the subquery's tokens; None if it is wrong."""
        query, report = self._node.this, self._reader.report
        before = len(report.mistakes)
        found = self._table(query)
        if isinstance(found, Refusal):
            self._refuse(found)
            return None
        table, scope = found
        refused = self._refused(query, scope)
        if refused is not None:
            self._refuse(refused)
            return None
        item = query.expressions[0].unalias()
        clause = query.args.get("where")
        expressions = self._reader.expressions
        beside = WEIGHT in self._around.columns
        place = Clause("a scalar subquery", grouped=True, is_beside_changes=beside)
        expressions.check(item, scope, place)
        if clause is not None:
            expressions.check(clause.this, scope, Clause("WHERE", is_beside_changes=beside))
        inside, span = span_of(query), expressions.span(item)
        if len(report.mistakes) > before or inside is None or span is None:
            return None
        where = expressions.span(clause.this) if clause is not None else None
        texts = expressions.text(span), expressions.text(where) if where else None
        # The tokens include the parentheses.
        return table, texts, (inside[0] - 1, inside[1] + 1)

    def _table(self, query: exp.Expr) -> tuple[str, Scope] | Refusal:
        is_select = isinstance(query, exp.Select) and len(query.expressions) == 1
        if not is_select or any(v for k, v in query.args.items() if v and k not in _TAKEN):
            return SCALARS["shape"]
        table = query.args["from_"].this if query.args.get("from_") else None
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            return SCALARS["shape"]
        tables: Mapping[str, tuple[str, Output]] = self._reader.tables
        name = table.name.lower()
        if name not in tables and name not in self._reader.named:
            known = [each for each, output in tables.values() if output.reference]
            hint = nearest(table.name, known, listed(known, "reference tables"))
            return Refusal(f"`{table.name[:80]}`", hint, why="is no reference table")
        if name in self._reader.named or not tables[name][1].reference:
            return SCALARS["stream"]
        declared, output = tables[name]
        if WEIGHT in self._around.columns and output.reference == "unweighed":
            return REFERENCES["weight"]
        return declared, Scope(table.alias or declared, output, f"`{declared}`")

    def _refused(self, query: exp.Expr, scope: Scope) -> Refusal | None:
        """Why the subquery may not return one row (or is correlated); None if it does."""
        for each in query.find_all(exp.Column):
            parts = [part.name for part in each.parts]
            if scope.resolve(parts) is None and self._around.resolve(parts) is not None:
                return SCALARS["correlated"]
        item = query.expressions[0].unalias()
        calls = [each for each in item.walk() if aggregate_of(each)]
        if not calls or any(not _is_aggregated(each, item) for each in item.find_all(exp.Column)):
            return SCALARS["rows"]
        is_known = all(aggregate_of(each) in _AGGREGATES for each in calls)
        return None if is_known else SCALARS["aggregate"]

    def _refuse(self, refused: Refusal) -> None:
        where = self._reader.expressions.where(self._node)
        self._reader.report.add(where, refused.problem, refused.instead)


def _is_aggregated(column: exp.Expr, item: exp.Expr) -> bool:
    """Whether a column stands within an aggregate."""
    node: exp.Expr | None = column
    while node is not None and node is not item.parent:
        if aggregate_of(node):
            return True
        node = node.parent
    return False

"""Queries over a changelog, whose column ``_weight`` marks retractions.

A row of weight -1 retracts an earlier row. A query that ignores this would count deleted rows, so
it has to mention ``_weight`` somewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from laminar_dagster.config.sql.functions import aggregate_of
from laminar_dagster.config.sql.scope import Output, Scope

if TYPE_CHECKING:
    from laminar_dagster.config.sql.expressions import Expressions

WEIGHT: Final = "_weight"

_NEVER: Final = "it cannot be taken back; WHERE _weight = 1 looks at rows that came alone"
_INSTEAD: Final = {
    "count": "write SUM(_weight); with a column, SUM(IF(x IS NULL, 0, _weight))",
    "sum": "write SUM(x * _weight)",
    "avg": "write SUM(x * _weight) / SUM(_weight)",
    "count_if": "write SUM(IF(condition, _weight, 0))",
}


def check_projection(
    node: exp.Select, scope: Scope, output: Sequence[str], expressions: Expressions
) -> None:
    """Refuse a projection that neither selects ``_weight`` nor filters by it."""
    if WEIGHT not in scope.columns or WEIGHT in output:
        return
    if not _mentions(_parts(node, "where"), scope):
        problem = f"`{WEIGHT}` of {scope.description} is left out: deletes would look like rows"
        hint = f"select `{WEIGHT}` too, or only rows that came with WHERE {WEIGHT} = 1"
        expressions.report.add(expressions.where(node), problem, hint)


def is_carried(node: exp.Select, scope: Scope, output: Sequence[str]) -> bool:
    """Whether ``_weight`` is added to a projection that emits changes and does not mention it."""
    silent = WEIGHT not in output and not _mentions(_parts(node, "where"), scope)
    return WEIGHT in scope.columns and silent


def weight_of(
    node: exp.Select, scope: Scope, expressions: Expressions, *, is_session: bool = False
) -> str | None:
    """The column by which an aggregation weighs its input; None if it does not.

    An aggregation applies retractions by itself, unless the query mentions ``_weight``: then it is
    a column like any other.
    """
    if WEIGHT not in scope.columns or mentions_weight(node, scope):
        return None
    report, lacking = expressions.report, scope.output.lacks_retractions
    if lacking:
        problem = f"an update in {scope.description} may come without the row before it"
        report.add(expressions.where(node), problem, f"set {lacking}")
    if is_session:
        problem = f"a session of {scope.description} cannot come apart when a row is taken back"
        report.add(expressions.where(node), problem, "use TUMBLE or HOP, or WHERE _weight = 1")
    for part in _parts(node, "having"):
        for each in part.find_all(exp.Anonymous):
            if aggregate_of(each) == "approx_count_distinct":
                problem = f"a sketch of {scope.description} cannot undo a row that is taken back"
                hint = "write COUNT(DISTINCT x), which keeps every value"
                report.add(expressions.where(each), problem, hint)
    return WEIGHT


def mentions_weight(node: exp.Select, scope: Scope) -> bool:
    """Whether a query mentions ``_weight`` itself."""
    every = [node.args.get(each) for each in ("where", "group", "having", "qualify")]
    return _mentions([*node.expressions, *(each for each in every if each is not None)], scope)


def check_aggregation(
    node: exp.Select, scope: Scope, output: Sequence[str], expressions: Expressions
) -> None:
    """Refuse aggregates that would count retracted rows, in a query that mentions ``_weight``."""
    if WEIGHT not in scope.columns or not mentions_weight(node, scope):
        return
    report = expressions.report
    if WEIGHT in output:
        where = expressions.where(node)
        report.add(where, f"the name `{WEIGHT}` is reserved", "rows of a window are never deleted")
    where_clause, group = node.args.get("where"), node.args.get("group")
    if _mentions([each for each in (where_clause, group) if each is not None], scope):
        return
    calls = [
        each
        for part in _parts(node, "having")
        for each in part.find_all(exp.Anonymous)
        if aggregate_of(each)
    ]
    wrong = [
        each
        for each in calls
        if aggregate_of(each) != "sum" or not _mentions(each.expressions, scope)
    ]
    for each in wrong:
        name = aggregate_of(each)
        problem = f"{name.upper()} over {scope.description} would count rows that were taken back"
        report.add(expressions.where(each), problem, _instead(name))
    if not calls:
        problem = f"groups of {scope.description} would hold rows that were taken back"
        hint = f"add HAVING SUM({WEIGHT}) > 0, or WHERE {WEIGHT} = 1"
        report.add(expressions.where(node), problem, hint)
    lacking = scope.output.lacks_retractions
    if lacking and calls and not wrong:
        problem = f"an update in {scope.description} may come without the row before it"
        report.add(expressions.where(calls[0]), problem, f"set {lacking}")


def misplaced(outputs: Sequence[Output]) -> int | None:
    """The first query of a UNION ALL whose ``_weight`` is not where the first query has it."""
    first = outputs[0].columns
    place = first.index(WEIGHT) if WEIGHT in first else None
    for number, each in enumerate(outputs):
        if WEIGHT in each.columns and each.columns.index(WEIGHT) != place:
            return number
    return None


def _instead(name: str) -> str:
    return _INSTEAD.get(name, _NEVER)


def _parts(node: exp.Select, clause: str) -> list[exp.Expr]:
    more = node.args.get(clause)
    return [*node.expressions, *([more] if more is not None else [])]


def _mentions(parts: Iterable[exp.Expr], scope: Scope) -> bool:
    for part in parts:
        for each in part.find_all(exp.Column):
            found = scope.resolve([name.name for name in each.parts])
            if found is not None and found[1] == WEIGHT:
                return True
    return False

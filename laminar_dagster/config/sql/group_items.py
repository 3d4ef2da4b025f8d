"""The items of GROUP BY, its window, and what a window in FROM requires of it.

``FROM TABLE(TUMBLE(TABLE t, …))`` repeats every row of the table once for each of its windows. So
groups lie within a window only if the window's edges are among the items of GROUP BY.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp

from laminar_dagster.config.sql.dialect import call_of, partition_of
from laminar_dagster.config.sql.expressions import Clause, Expressions
from laminar_dagster.config.sql.functions import WINDOWS
from laminar_dagster.config.sql.refusals import TABLE_WINDOWS
from laminar_dagster.config.sql.scope import Scope


def items_of(group: exp.Expr) -> Iterator[exp.Expr]:
    """The items of GROUP BY, those in parentheses too: ``(a, b)`` is a and b."""
    stack = [*reversed(group.expressions)]
    while stack:
        each = stack.pop()
        if isinstance(each, exp.Paren):
            stack.append(each.this)
        elif isinstance(each, exp.Tuple):
            stack += reversed(each.expressions)
        else:
            yield each


def is_window(node: exp.Expr) -> bool:
    """Whether an item of GROUP BY is ``TUMBLE(…)`` or the like."""
    return isinstance(node, exp.Anonymous) and call_of(node) in WINDOWS


def is_told_by(window: exp.Expr, edges: Collection[str]) -> bool:
    """Whether some of a window's edges identify the window."""
    # Several windows of CUMULATE share a start.
    return "window_end" in edges or ("window_start" in edges and call_of(window) != "cumulate")


def check_partition(
    window: exp.Expr, keys: Collection[str], scope: Scope, expressions: Expressions
) -> None:
    """Refuse a SESSION in FROM that is not partitioned by the keys of GROUP BY.

    In Flink, sessions are of the whole table, or of the keys of PARTITION BY; here they are of the
    keys of GROUP BY. Where these differ, the same query would mean other sessions.
    """
    before = len(expressions.report.mistakes)
    texts: set[str] = set()
    for each in partition_of(window):
        expressions.check(each, scope, Clause("PARTITION BY"))
        span = expressions.span(each)
        texts |= {expressions.text(span)} if span is not None else set()
    if len(expressions.report.mistakes) == before and texts != set(keys):
        refused = TABLE_WINDOWS["partition"]
        expressions.report.add(expressions.where(window), refused.problem, refused.instead)

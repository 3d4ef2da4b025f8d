"""Refuses parameters of lambdas, as in ``transform(tags, x -> upper(x))``, that clash with columns.

In the SQL for Spark columns have no qualifiers, and a grouping key is ``_k0``. A parameter of the
same name would capture the column, or the column the parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.refusal import Refusal
from laminar_dagster.config.sql.scope import Scope

_RENAME: Final = "give the parameter another name"
# The generated names of keys, aggregates and values of scalar subqueries.
_MADE_NAME: Final = re.compile(r"_[akv]\d+")

LAMBDAS: Final[Mapping[str, Refusal]] = {
    "hidden": Refusal(
        "a column within a lambda whose parameter has its name",
        _RENAME,
        example="SELECT exists(tags, page -> page = clicks.page) AS e FROM clicks",
        why="would be taken for the parameter",
    ),
    "grouped": Refusal(
        "a parameter of a lambda with the name of a column, beside groups",
        _RENAME,
        example="SELECT upper(page) AS p, transform(array('a'), page -> upper(page)) AS l, "
        "COUNT(*) AS n FROM clicks GROUP BY upper(page), TUMBLE(ts, INTERVAL '1' MINUTE)",
        why="would be taken for the column",
    ),
    "made": Refusal(
        "a parameter of a lambda called like `_k0`, `_a0` or `_v0`",
        _RENAME,
        example="SELECT transform(tags, _k0 -> upper(_k0)) AS l FROM clicks",
        why="would be taken for a column that is made for the query",
    ),
}


def refused_parameters(
    node: exp.Lambda, scope: Scope, *, is_over_groups: bool
) -> Iterator[tuple[exp.Expr, Refusal]]:
    """The parameters of a lambda that could be taken for columns, with what is wrong.

    Args:
        node: The lambda.
        scope: The input of its query.
        is_over_groups: It is computed from keys and aggregates, which are matched by their text.
    """
    for each in node.expressions:
        name = each.name.lower()
        if _MADE_NAME.fullmatch(name):
            yield each, LAMBDAS["made"]
        elif is_over_groups and _is_column(name, scope):
            yield each, LAMBDAS["grouped"]


def is_hidden(node: exp.Column, declared: str) -> bool:
    """Whether Spark would take a column for a lambda's parameter, by its name or first part."""
    names = {declared.lower(), node.parts[0].name.lower()}
    around = node.parent
    while around is not None:
        if isinstance(around, exp.Lambda):
            if any(each.name.lower() in names for each in around.expressions):
                return True
        around = around.parent
    return False


def _is_column(name: str, scope: Scope) -> bool:
    if name in WINDOW_COLUMNS:
        return True
    return not scope.output.unknown and scope.resolve([name]) is not None

"""The arguments of aggregates: how many each takes, and which have to be literals.

Percentages, separators and the precision of a sketch are part of the name of the state, so they
have to be literals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from laminar_dagster.config.sql import functions
from laminar_dagster.config.sql.dialect import call_of
from laminar_dagster.config.sql.functions import aggregate_of, is_distinct

# The fewest and most arguments of an aggregate; one for those not listed.
_ARGUMENTS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(functions.OF_TWO, (2, 2)),
    "percentile": (2, 2),
    "approx_percentile": (2, 3),
    "approx_count_distinct": (1, 2),
    "string_agg": (1, 2),
}
_COUNTS: Final = {1: "one argument", 2: "two arguments"}
# The default precision of the sketches.
ACCURACY: Final = 100
_MAX_ACCURACY: Final = 1_000_000
DEVIATION: Final = 0.05
_LEAST_DEVIATION: Final = 0.005


def problem_of(node: exp.Expr) -> tuple[str, str] | None:
    """What is wrong with the arguments of an aggregate, and what to write; None if nothing is."""
    name, function = call_of(node).upper(), aggregate_of(node)
    given = arguments_in(node)
    around = node.parent if isinstance(node.parent, exp.WithinGroup) else None
    fewest, most = _ARGUMENTS.get(function, (1, 1))
    if function == "count" and is_distinct(node):
        most = len(given)
    if not fewest <= len(given) <= most:
        return f"{name} takes {_COUNTS[most] if most < 3 else 'two or three arguments'} here", ""
    if function in functions.ORDERED_SETS:
        if around is None:
            return f"{name} needs an order", f"write {name}(0.5) WITHIN GROUP (ORDER BY x)"
        order = around.expression.expressions
        if len(order) != 1 or order[0].args.get("desc"):
            return f"{name} goes by one expression, ascending", "take 1 - percentage instead"
    return _problem_of_literal(function, given)


def _problem_of_literal(function: str, given: list[exp.Expr]) -> tuple[str, str] | None:
    last = given[-1]
    if function in ("percentile", *functions.ORDERED_SETS) and not shares_of(last):
        return _SHARES
    if function == "approx_percentile":
        if not shares_of(given[1]):
            return _SHARES
        if len(given) == 3 and not 1 <= (number_of(given[2]) or 0) <= _MAX_ACCURACY:
            return "the accuracy has to be written out", f"as a number from 1 to {_MAX_ACCURACY}"
    if function == "approx_count_distinct" and len(given) == 2:
        if not _LEAST_DEVIATION <= (number_of(last) or 0) <= 0.4:
            return "the relative deviation has to be written out", "as a number from 0.005 to 0.4"
    if function == "string_agg" and len(given) == 2 and not _is_text(last):
        return "the separator has to be written out", "as a text, such as ', '"
    return None


_SHARES: Final = (
    "a percentage has to be written out",
    "as a number between 0 and 1, or an array(…) of such",
)


def arguments_in(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of an aggregate, with or without DISTINCT."""
    inside = node.expressions[0].expressions if is_distinct(node) else node.expressions
    return list(inside)


def shares_of(node: exp.Expr) -> tuple[float, ...]:
    """The percentages of a literal or array; empty unless all are literals between 0 and 1."""
    several = node.expressions if call_of(node) == "array" else [node]
    found = [number_of(each) for each in several]
    known = tuple(each for each in found if each is not None and 0 <= each <= 1)
    return known if len(known) == len(found) else ()


def number_of(node: exp.Expr) -> float | None:
    """The value of a literal number; None if it is something else."""
    if isinstance(node, exp.Cast):
        # A literal with a type suffix, such as 0.5D, is parsed as a cast.
        node = node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    return float(node.name)


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)

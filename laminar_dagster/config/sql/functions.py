"""The functions of SQL, and the kind of each.

``spark_functions.txt`` is Spark's own list; a test compares it with the installed Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from sqlglot import exp

from laminar_dagster.config.sql.dialect import call_of

FunctionKind = Literal["scalar", "aggregate", "window", "generator"]

# Part of Spark's grammar, and so missing in its list.
_GRAMMAR: Final = ("try_cast", "timestampadd", "timestampdiff")

LOGICAL_CLOCK: Final = "epoch_time"
# The supported aggregates: every name in SQL, and the engine's name for it.
AGGREGATES: Final[Mapping[str, str]] = {
    "count": "count",
    "count_if": "count_if",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "mean": "avg",
    "min_by": "min_by",
    "max_by": "max_by",
    "first": "first",
    "first_value": "first",
    "last": "last",
    "last_value": "last",
    "any_value": "any_value",
    "array_agg": "collect_list",
    "collect_list": "collect_list",
    "collect_set": "collect_set",
    "string_agg": "string_agg",
    "listagg": "string_agg",
    "median": "median",
    "mode": "mode",
    "percentile": "percentile",
    "percentile_cont": "percentile_cont",
    "percentile_disc": "percentile_disc",
    "approx_count_distinct": "approx_count_distinct",
    "approx_percentile": "approx_percentile",
    "percentile_approx": "approx_percentile",
    "bool_and": "bool_and",
    "every": "bool_and",
    "bool_or": "bool_or",
    "some": "bool_or",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "skewness": "skewness",
    "kurtosis": "kurtosis",
    "corr": "corr",
    "covar_samp": "covar_samp",
    "covar_pop": "covar_pop",
    "regr_count": "regr_count",
    "regr_avgx": "regr_avgx",
    "regr_avgy": "regr_avgy",
    "regr_sxx": "regr_sxx",
    "regr_syy": "regr_syy",
    "regr_sxy": "regr_sxy",
    "regr_slope": "regr_slope",
    "regr_intercept": "regr_intercept",
    "regr_r2": "regr_r2",
}
# Aggregates of two expressions.
OF_TWO: Final = frozenset(
    each
    for each in AGGREGATES.values()
    if each in ("min_by", "max_by", "corr") or each.startswith(("covar_", "regr_"))
)
# Aggregates that may be called with DISTINCT.
DISTINCT: Final = ("count", "sum", "min", "max", "collect_list", "collect_set", "string_agg")
# Aggregates that need WITHIN GROUP, and all that may have it.
ORDERED_SETS: Final = ("percentile_cont", "percentile_disc")
ORDERED: Final = (*ORDERED_SETS, "string_agg")
WINDOWS: Final = ("tumble", "hop", "cumulate", "session")
WINDOW_EDGES: Final[Mapping[str, tuple[str, str]]] = {
    f"{name}_{edge}": (name, f"window_{edge}") for name in WINDOWS for edge in ("start", "end")
}
WINDOW_COLUMNS: Final = ("window_start", "window_end")

# Functions whose first of three arguments is a unit such as DAY, not a column.
WITH_UNIT: Final = frozenset(
    {"dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"}
)
UNITS: Final = frozenset(
    "microsecond millisecond second minute hour day dayofyear week month quarter year".split(" ")
)

# Spark reads these names as function calls even without parentheses, unless a column has the name.
WITHOUT_PARENTHESES: Final = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtimestamp",
        "session_user",
        "user",
    }
)

# Spark's functions that are not supported, with what to write instead.
ELSEWHERE: Final[Mapping[str, str]] = {
    "window": "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) or HOP(ts, slide, size)",
    "session_window": "GROUP BY SESSION(ts, INTERVAL '30' MINUTE)",
    "window_time": "use window_start or window_end",
}


@cache
def spark_functions() -> Mapping[str, FunctionKind]:
    """Every function of Spark by its name in lower case."""
    text = (files(__package__) / "spark_functions.txt").read_text(encoding="utf-8")
    found: dict[str, FunctionKind] = dict.fromkeys(_GRAMMAR, "scalar")
    for line in text.splitlines():
        if not line.startswith("#"):
            name, kind = line.split(" ")
            found[name] = kind  # type: ignore[assignment]
    return found


def suggestions() -> tuple[str, ...]:
    """Every name that a call may have, for the nearest spelling."""
    return (*spark_functions(), LOGICAL_CLOCK, *WINDOWS, *WINDOW_EDGES)


def aggregate_of(node: exp.Expr) -> str:
    """The supported aggregate that a node calls; empty if none."""
    name = call_of(node) if isinstance(node, exp.Anonymous) else ""
    return AGGREGATES.get(name, "")


def aggregate_within(node: exp.Expr) -> str:
    """As ``aggregate_of``, for a call that FILTER and WITHIN GROUP may follow."""
    while isinstance(node, exp.Filter | exp.WithinGroup):
        node = node.this
    return aggregate_of(node)


def is_distinct(node: exp.Expr) -> bool:
    """Whether an aggregate is called with DISTINCT."""
    return bool(node.expressions) and isinstance(node.expressions[0], exp.Distinct)


def aggregates_in(tree: exp.Expr) -> bool:
    """Whether an expression calls an aggregate of any kind, supported or not."""
    kinds = spark_functions()
    return any(kinds.get(call_of(each)) == "aggregate" for each in tree.find_all(exp.Anonymous))

"""An aggregate call of a query, with the ORDER BY that some aggregates take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AggregateFunction = Literal[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "min_by",
    "max_by",
    "collect_list",
    "collect_set",
    "count_distinct",
    "sum_distinct",
    "approx_count_distinct",
    "approx_percentile",
    "percentile",
    "percentile_disc",
    "mode",
    "string_agg",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "stddev_samp",
    "stddev_pop",
    "var_samp",
    "var_pop",
    "skewness",
    "kurtosis",
    "corr",
    "covar_samp",
    "covar_pop",
    "regr_count",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
]


@dataclass(frozen=True, slots=True)
class Ordering:
    """An item of ORDER BY: Spark SQL over the input."""

    sql: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate. ``argument`` is Spark SQL over the input; None for ``COUNT(*)``.

    Attributes:
        name: Its column in the state, ``_a0``, ``_a1``, …
        by: The ordering expression of MIN_BY and MAX_BY.
        others: Further arguments, of CORR and its like, and of COUNT(DISTINCT a, b).
        order: The order in which STRING_AGG joins texts.
        shares: The wanted percentiles, each between 0 and 1.
        is_list: Whether percentiles come as a list.
        separator: What STRING_AGG puts between texts.
        is_distinct: Whether STRING_AGG joins each distinct text once.
        precision: Of a sketch, in bits.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    by: str | None = None
    others: tuple[str, ...] = ()
    order: tuple[Ordering, ...] = ()
    shares: tuple[float, ...] = ()
    is_list: bool = False
    separator: str = ""
    is_distinct: bool = False
    precision: int = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """Every expression over the input that it reads, as Spark SQL, without duplicates."""
        given = (self.argument, self.by, *self.others, *(each.sql for each in self.order))
        return tuple(dict.fromkeys(each for each in given if each is not None))

"""The state columns (partials) of each aggregate, which can be merged and undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from laminar_dagster.config.aggregate import Aggregate, AggregateFunction
from laminar_dagster.config.relations import Aggregation

PartialFunction = Literal[
    "count",
    "sum",
    "min",
    "max",
    "min_by",
    "max_by",
    "values",
    "distinct",
    "bit_and",
    "bit_or",
    "bit_xor",
    "moments",
    "paired_moments",
    "multiset",
    "buckets",
    "registers",
]

# Aggregates that are computed from the moments of one column, and of two.
MOMENTS: Final = ("stddev_samp", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis")
PAIRED_MOMENTS: Final = (
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
)
# These need a multiset of all values, even without retractions.
_OF_EVERY_VALUE: Final = ("percentile", "percentile_disc", "mode", "string_agg", "sum_distinct")
_LEAST: Final[dict[AggregateFunction, Literal["min", "max"]]] = {
    "min": "min",
    "max": "max",
    "bool_and": "min",
    "bool_or": "max",
}


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of an operator's state, named after what it holds.

    Thanks to these names aggregates share common partials, and a state can be read after an
    aggregate was added, moved or removed elsewhere in the query.

    Attributes:
        by: The ordering expression of ``min_by`` and ``max_by``.
        others: Further columns, stored beside the argument.
        precision: The bits of a sketch; for moments, the highest one.
    """

    function: PartialFunction
    argument: str | None
    is_weighed: bool = False
    by: str | None = None
    others: tuple[str, ...] = ()
    precision: int = 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """The expressions that are stored together: the argument, then ``others``."""
        return (self.argument, *self.others) if self.argument is not None else ()

    @property
    def is_opaque(self) -> bool:
        """Whether its values never leave the state, only what is computed from them."""
        return self.function in ("multiset", "buckets", "registers")

    @property
    def name(self) -> str:
        """For example ``sum(price)``, ``count(*)`` or ``count(*) by weight``."""
        given = "*" if self.argument is None else self.argument
        more = [*([self.by] if self.by is not None else []), *self.others]
        more += [str(self.precision)] if self.precision else []
        call = f"{self.function}({', '.join([given, *more])})"
        return f"{call} by weight" if self.is_weighed else call


# The number of rows of a key that were not retracted; at zero the key is gone.
ROWS_BY_WEIGHT: Final = Partial("count", None, True)


def partials_of(aggregate: Aggregate, *, is_weighed: bool = False) -> tuple[Partial, ...]:
    """The partials that an aggregate needs, so that it can be merged.

    Args:
        aggregate: The aggregate.
        is_weighed: Whether there are retractions: then a sum also counts, to know when no value is
            left, and aggregates that choose a value, such as MIN, keep all values.
    """
    argument, function = aggregate.argument, aggregate.function
    if function == "count":
        return (Partial("count", argument, is_weighed),)
    if function == "avg" or (function == "sum" and is_weighed):
        kept = Partial("sum", argument, is_weighed)
        return kept, Partial("count", argument, is_weighed)
    if function == "approx_percentile":
        return (Partial("buckets", argument, is_weighed, precision=aggregate.precision),)
    if function == "approx_count_distinct":
        return (Partial("registers", argument, precision=aggregate.precision),)
    if question_of(aggregate, is_weighed=is_weighed) is not None:
        first, *others = _side_by_side(aggregate)
        return (Partial("multiset", first, is_weighed, others=tuple(others)),)
    return _merged_without_values(aggregate)


def _merged_without_values(aggregate: Aggregate) -> tuple[Partial, ...]:
    argument, function = aggregate.argument, aggregate.function
    match function:
        case "min" | "max" | "bool_and" | "bool_or":
            return (Partial(_LEAST[function], argument),)
        case "min_by":
            return Partial("min_by", argument, by=aggregate.by), Partial("min", aggregate.by)
        case "max_by":
            return Partial("max_by", argument, by=aggregate.by), Partial("max", aggregate.by)
        case "collect_list":
            return (Partial("values", argument),)
        case "collect_set" | "count_distinct":
            return (Partial("distinct", argument),)
        case "skewness" | "kurtosis":
            return (Partial("moments", argument, precision=4),)
        case "sum" | "bit_and" | "bit_or" | "bit_xor":
            return (Partial(function, argument),)
        case _ if function in PAIRED_MOMENTS:
            return (Partial("paired_moments", argument, others=aggregate.others),)
        case _:
            return (Partial("moments", argument),)


def question_of(aggregate: Aggregate, *, is_weighed: bool) -> str | None:
    """What to compute from the aggregate's multiset or sketch; None if it keeps neither."""
    function = aggregate.function
    several = function == "count_distinct" and aggregate.others
    if function in _OF_EVERY_VALUE or function.startswith("approx_") or several:
        return function
    if not is_weighed or function in ("count", "sum", "avg"):
        return None
    if function in MOMENTS:
        return "moments"
    if function in PAIRED_MOMENTS:
        return "paired_moments"
    asked = {"collect_list": "values", "collect_set": "distinct", **_LEAST}
    return asked.get(function, function)


def _side_by_side(aggregate: Aggregate) -> tuple[str, ...]:
    """The columns of an aggregate's multiset: those that it orders or chooses by come first."""
    assert aggregate.argument is not None
    first = [each.sql for each in aggregate.order]
    first += [aggregate.by] if aggregate.by is not None else []
    if first == [aggregate.argument] and aggregate.order:
        # The argument is its own order: do not store it twice.
        first = []
    return (*first, aggregate.argument, *aggregate.others)


def all_partials(query: Aggregation) -> tuple[Partial, ...]:
    """All partials in the state of an aggregation, without duplicates."""
    is_weighed = query.weight is not None
    wanted = [ROWS_BY_WEIGHT] if is_weighed else []
    for each in query.aggregates:
        wanted += partials_of(each, is_weighed=is_weighed)
    return tuple(dict.fromkeys(wanted))

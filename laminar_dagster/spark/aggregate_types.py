"""The types of aggregates: of their arguments, their partials, and their results in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.partials import (
    MOMENTS,
    PAIRED_MOMENTS,
    Partial,
    partials_of,
    question_of,
)
from laminar_dagster.spark import moments
from laminar_dagster.spark.aggregates import Merge, PartialColumn
from laminar_dagster.spark.answers import Answer
from laminar_dagster.spark.columns import quoted
from laminar_dagster.spark.multisets import multiset_type
from laminar_dagster.spark.sketches import REGISTERS

# Functions whose arguments need not be numbers: any type with an order will do.
_OF_ANY_VALUE: Final = (
    "min",
    "max",
    "min_by",
    "max_by",
    "collect_list",
    "collect_set",
    "count_distinct",
    "mode",
)


class WrongType(ValueError):
    """A key or an argument is of a type that it cannot have."""


def check_arguments(
    aggregate: Aggregate, types: Mapping[str, pa.DataType], *, is_weighed: bool = False
) -> None:
    """Refuse arguments of a type that an aggregate cannot take.

    Sums of floats are refused under retractions: subtracting does not undo adding (1e16 + 1 - 1e16
    is 0), so the result would depend on how the stream is cut into epochs, and NaN would never go.

    Args:
        aggregate: The aggregate.
        types: The types of its arguments, by their SQL.
        is_weighed: Whether its input has retractions.

    Raises:
        WrongType: An argument has such a type.
    """
    function = aggregate.function
    for text in (*([aggregate.by] if aggregate.by else []), *(o.sql for o in aggregate.order)):
        if pa.types.is_nested(types[text]):
            raise WrongType(f"`{text}` has no order: it is of type {types[text]}")
    given = [text for text in (aggregate.argument, *aggregate.others) if text is not None]
    for text in given if function not in ("count", "approx_count_distinct") else ():
        kind = types[text]
        call = f"{function.upper()}({', '.join(given)})"
        if function in _OF_ANY_VALUE:
            if pa.types.is_nested(kind):
                raise WrongType(f"{call} needs values with an order, and they are of type {kind}")
            continue
        if function in ("bool_and", "bool_or"):
            fits, needs = pa.types.is_boolean(kind), "a condition"
        elif function == "string_agg":
            fits, needs = pa.types.is_string(kind), "a text: CAST(… AS STRING)"
        elif function.startswith("bit_"):
            fits, needs = pa.types.is_integer(kind), "a whole number"
        elif is_weighed and function in ("sum", "avg") and _is_number(kind):
            fits = not pa.types.is_floating(kind)
            needs = "exact numbers where rows are taken back: CAST(… AS DECIMAL(38, 6))"
        else:
            fits, needs = _is_number(kind), "a number"
        if not fits:
            raise WrongType(f"{call} needs {needs}, and its argument is of type {kind}")


def column_of(
    partial: Partial, names: Sequence[str], types: Sequence[pa.DataType]
) -> PartialColumn:
    """The column that keeps a partial.

    Args:
        partial: The partial.
        names: The input columns with the values of its arguments; none counts rows.
        types: The types of these columns.
    """
    merge: Merge = "sum"
    argument, *others = names or (None,)
    argument_type = types[0] if types else None
    kind = pa.int64()
    match partial.function:
        case "count":
            pass
        case "sum":
            kind = sum_type(argument_type)
        case "min" | "max" | "min_by" | "max_by" | "bit_and" | "bit_or" | "bit_xor" as merge:
            kind = argument_type
        case "values" | "distinct" as merge:
            kind = pa.list_(argument_type)
        case "multiset":
            merge, kind = "multisets", multiset_type(types)
        case "buckets":
            merge, kind = "multisets", multiset_type([pa.int64()])
        case "registers":
            merge, kind = "register_maxima", REGISTERS
        case "moments":
            merge = "merged_moments"
            kind = moments.HIGHER_MOMENTS if partial.precision else moments.MOMENTS
        case "paired_moments":
            merge, kind = "merged_paired_moments", moments.PAIRED_MOMENTS
    return PartialColumn(
        partial.name,
        argument,
        partial.function,
        merge,
        kind,
        argument_type,
        others=tuple(others),
        precision=partial.precision,
    )


def answer_of(
    aggregate: Aggregate, types: Mapping[str, pa.DataType], *, is_weighed: bool
) -> Answer | None:
    """The output column finalised from an aggregate's state; None if its partials are output.

    Args:
        aggregate: The aggregate.
        types: The types of its arguments, by their SQL.
        is_weighed: Whether its input has retractions.
    """
    asked = question_of(aggregate, is_weighed=is_weighed)
    if asked is None:
        return None
    assert aggregate.argument is not None
    (kept,) = partials_of(aggregate, is_weighed=is_weighed)
    return Answer(
        aggregate.name,
        asked,
        kept.name,
        _answer_type(asked, aggregate, types[aggregate.argument]),
        aggregate.shares,
        aggregate.is_list,
        aggregate.separator,
        tuple((each.descending, each.nulls_first) for each in aggregate.order),
        aggregate.precision,
        aggregate.is_distinct,
    )


def _answer_type(asked: str, aggregate: Aggregate, kind: pa.DataType) -> pa.DataType:
    match asked:
        case "count_distinct" | "approx_count_distinct":
            return pa.int64()
        case "sum_distinct":
            return sum_type(kind)
        case "values" | "distinct":
            return pa.list_(kind)
        case "string_agg":
            return pa.string()
        case "percentile" | "percentile_disc" | "approx_percentile":
            return pa.list_(pa.float64()) if aggregate.is_list else pa.float64()
        case "moments":
            is_higher = aggregate.function in ("skewness", "kurtosis")
            return moments.HIGHER_MOMENTS if is_higher else moments.MOMENTS
        case "paired_moments":
            return moments.PAIRED_MOMENTS
        case _:
            return kind


def finished_sql(
    aggregate: Aggregate, argument_type: pa.DataType | None, *, is_weighed: bool = False
) -> str:
    """The aggregate's value as Spark SQL over the step's output, with Spark's own result type."""
    kept = [quoted(each.name) for each in partials_of(aggregate, is_weighed=is_weighed)]
    if question_of(aggregate, is_weighed=is_weighed) is not None:
        kept = [quoted(aggregate.name)]
    value = kept[0]
    function = aggregate.function
    digits = None
    if argument_type is not None and pa.types.is_decimal(argument_type):
        digits = (argument_type.precision, argument_type.scale)
    if is_weighed and function == "sum":
        # NULL instead of 0 once every value has been retracted.
        value = f"IF({kept[1]} = 0, NULL, {value})"
    match function:
        case "sum" | "sum_distinct" if digits:
            return f"CAST({value} AS DECIMAL({min(38, digits[0] + 10)}, {digits[1]}))"
        case "avg" if digits:
            result = f"DECIMAL({min(38, digits[0] + 4)}, {min(38, digits[1] + 4)})"
            return f"CAST({value} / NULLIF({kept[1]}, 0) AS {result})"
        case "avg":
            return f"CAST({value} AS DOUBLE) / NULLIF({kept[1]}, 0)"
        case "count_distinct" if value != quoted(aggregate.name):
            return f"CAST(size({value}) AS BIGINT)"
        case "approx_percentile":
            return _of_argument(aggregate, value, argument_type)
        case _ if function in MOMENTS or function in PAIRED_MOMENTS:
            return _OF_MOMENTS[function].format(m=value)
        case _:
            return value


def _of_argument(aggregate: Aggregate, value: str, kind: pa.DataType | None) -> str:
    """Cast a number, or a list of numbers, to the type of the argument, as Spark does."""
    if kind is None or kind == pa.float64():
        return value
    if pa.types.is_decimal(kind):
        spelled = f"DECIMAL({kind.precision}, {kind.scale})"
    elif pa.types.is_integer(kind):
        spelled = _INTEGERS[kind.bit_width]
    else:
        spelled = "FLOAT"
    rounded = "round({x})" if pa.types.is_integer(kind) else "{x}"
    one = f"CAST({rounded} AS {spelled})"
    if aggregate.is_list:
        return f"transform({value}, x -> {one.format(x='x')})"
    return one.format(x=value)


_INTEGERS: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_OF_MOMENTS: Final = {
    "var_pop": "IF({m}.n > 0, {m}.m2 / {m}.n, NULL)",
    "var_samp": "IF({m}.n > 1, {m}.m2 / ({m}.n - 1), NULL)",
    "stddev_pop": "IF({m}.n > 0, sqrt({m}.m2 / {m}.n), NULL)",
    "stddev_samp": "IF({m}.n > 1, sqrt({m}.m2 / ({m}.n - 1)), NULL)",
    "skewness": "IF({m}.m2 > 0, sqrt({m}.n) * {m}.m3 / sqrt({m}.m2 * {m}.m2 * {m}.m2), NULL)",
    "kurtosis": "IF({m}.m2 > 0, {m}.n * {m}.m4 / ({m}.m2 * {m}.m2) - 3, NULL)",
    "corr": "IF({m}.n > 1 AND {m}.m2_0 * {m}.m2_1 > 0, {m}.c / sqrt({m}.m2_0 * {m}.m2_1), NULL)",
    "covar_pop": "IF({m}.n > 0, {m}.c / {m}.n, NULL)",
    "covar_samp": "IF({m}.n > 1, {m}.c / ({m}.n - 1), NULL)",
    # REGR_*(y, x): the first argument is the dependent variable, the second the independent one.
    "regr_count": "{m}.n",
    "regr_avgy": "IF({m}.n > 0, {m}.mean0, NULL)",
    "regr_avgx": "IF({m}.n > 0, {m}.mean1, NULL)",
    "regr_syy": "IF({m}.n > 0, {m}.m2_0, NULL)",
    "regr_sxx": "IF({m}.n > 0, {m}.m2_1, NULL)",
    "regr_sxy": "IF({m}.n > 0, {m}.c, NULL)",
    "regr_slope": "IF({m}.m2_1 > 0, {m}.c / {m}.m2_1, NULL)",
    "regr_intercept": "IF({m}.m2_1 > 0, {m}.mean0 - {m}.c / {m}.m2_1 * {m}.mean1, NULL)",
    "regr_r2": "IF({m}.m2_1 > 0, IF({m}.m2_0 > 0, "
    "{m}.c * {m}.c / ({m}.m2_0 * {m}.m2_1), 1D), NULL)",
}


def sum_type(argument_type: pa.DataType | None) -> pa.DataType:
    """The type that a sum of such values has in the state."""
    if argument_type is not None and pa.types.is_decimal(argument_type):
        return pa.decimal128(38, argument_type.scale)
    if argument_type is not None and pa.types.is_floating(argument_type):
        return pa.float64()
    return pa.int64()


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )

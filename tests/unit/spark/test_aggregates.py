"""Partials merge to what aggregating everything at once would give."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.partials import Partial, partials_of
from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.spark.aggregate_types import (
    WrongType,
    check_arguments,
    column_of,
    finished_sql,
)
from laminar_dagster.spark.aggregates import (
    PartialColumn,
    first_partials,
    merge_partials,
)

FUNCTIONS: Final = ("count", "sum", "min", "max", "avg")


def columns_for(kind: pa.DataType) -> tuple[PartialColumn, ...]:
    wanted = [p for each in FUNCTIONS for p in partials_of(Aggregate("_a0", each, "x"))]
    kept = (column_of(each, ["_x0"], [kind]) for each in dict.fromkeys(wanted))
    return (column_of(Partial("count", None), [], []), *kept)


def table(keys: list[str | None], values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.string()), "_x0": pa.array(values, kind)})


rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-1000, 1000)),
    min_size=1,
    max_size=30,
)


@given(rows, st.data())
def test_any_cut_merges_to_the_whole(
    records: list[tuple[str | None, int | None]], data: st.DataObject
) -> None:
    columns = columns_for(pa.int64())
    whole = table([k for k, _ in records], [v for _, v in records], pa.int64())
    cut = data.draw(st.integers(0, len(records)))
    parts = [first_partials(each, ["k"], columns, "op") for each in (whole[:cut], whole[cut:])]
    merged = merge_partials(pa.concat_tables(parts), ["k"], columns, "op")
    found = {row["k"]: row for row in merged.to_pylist()}
    for key in {k for k, _ in records}:
        mine = [v for k, v in records if k == key]
        known = [v for v in mine if v is not None]
        row = found[key]
        assert row["count(*)"] == len(mine)
        assert row["count(x)"] == len(known)
        assert row["sum(x)"] == (sum(known) if known else None)
        assert row["min(x)"] == min(known, default=None)
        assert row["max(x)"] == max(known, default=None)


def test_nan_is_the_largest_and_zero_is_one() -> None:
    columns = columns_for(pa.float64())
    values = [1.0, math.nan, None, -math.inf, -0.0]
    row = first_partials(table(["a"] * 5, values, pa.float64()), ["k"], columns, "op").to_pylist()[
        0
    ]
    assert math.isnan(row["max(x)"])
    assert row["min(x)"] == -math.inf
    only = first_partials(table(["a"], [-5.25], pa.float64()), ["k"], columns, "op").to_pylist()[0]
    assert (only["min(x)"], only["max(x)"]) == (-5.25, -5.25)


def test_a_sum_of_integers_is_exact_or_refused() -> None:
    columns = columns_for(pa.int64())
    big = 2**62
    exact = table(["a"] * 3, [big, big, -big], pa.int64())
    assert first_partials(exact, ["k"], columns, "op").to_pylist()[0]["sum(x)"] == big
    with pytest.raises(ComputeFailed, match="does not fit"):
        first_partials(table(["a"] * 2, [big, big], pa.int64()), ["k"], columns, "op")


def test_decimals_keep_their_scale() -> None:
    kind = pa.decimal128(10, 2)
    columns = columns_for(kind)
    values = [Decimal("1.10"), Decimal("2.25"), None]
    row = first_partials(table(["a"] * 3, values, kind), ["k"], columns, "op").to_pylist()[0]
    assert row["sum(x)"] == Decimal("3.35")
    assert (row["min(x)"], row["max(x)"]) == (Decimal("1.10"), Decimal("2.25"))


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_floats_that_are_taken_back_are_refused(function: Any) -> None:
    """1e16 + 1 - 1e16 is 0, and 1 in another cut into epochs."""
    aggregate = Aggregate("_a0", function, "x")
    for kind in (pa.float32(), pa.float64()):
        check_arguments(aggregate, {"x": kind})
        with pytest.raises(WrongType, match=r"exact numbers .*: CAST\(… AS DECIMAL"):
            check_arguments(aggregate, {"x": kind}, is_weighed=True)
    for kind in (pa.int32(), pa.int64(), pa.decimal128(10, 2)):
        check_arguments(aggregate, {"x": kind}, is_weighed=True)
    check_arguments(Aggregate("_a0", "max", "x"), {"x": pa.float64()}, is_weighed=True)


def test_texts_have_an_order() -> None:
    kind = pa.string()
    columns = [column_of(Partial(each, "x"), ["_x0"], [kind]) for each in FUNCTIONS[2:4]]
    rows = table(["a"] * 3, ["b", "a", None], kind)
    (row,) = first_partials(rows, ["k"], columns, "op").to_pylist()
    assert (row["min(x)"], row["max(x)"]) == ("a", "b")


def test_results_have_the_types_of_spark() -> None:
    kind = pa.decimal128(10, 2)
    assert finished_sql(Aggregate("_a0", "sum", "x"), kind) == ("CAST(`sum(x)` AS DECIMAL(20, 2))")
    assert "DECIMAL(14, 6)" in finished_sql(Aggregate("_a0", "avg", "x"), kind)
    assert "DOUBLE" in finished_sql(Aggregate("_a0", "avg", "x"), pa.int64())
    assert finished_sql(Aggregate("_a0", "max", "x"), pa.string()) == "`max(x)`"


def test_no_rows_give_no_rows() -> None:
    for kind in (pa.int64(), pa.float64(), pa.decimal128(10, 2)):
        columns = columns_for(kind)
        assert first_partials(table([], [], kind), ["k"], columns, "op").num_rows == 0

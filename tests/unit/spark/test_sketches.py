"""Sketches merge to the same bytes in any cut, and keep to their error."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.partials import Partial
from laminar_dagster.spark.aggregate_types import column_of
from laminar_dagster.spark.aggregates import first_partials, merge_partials
from laminar_dagster.spark.answers import Answer, answered
from laminar_dagster.spark.sketches import buckets, estimated, middles, registers

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)
FLOATS = st.floats(allow_nan=False, width=64)


def hashes(count: int, seed: int) -> Any:
    found = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count, np.int64)
    return pa.array(found)


@pytest.mark.parametrize("precision", [4, 9, 12])
@pytest.mark.parametrize("count", [0, 1, 50, 1000, 30_000])
def test_distinct_values_are_counted_within_the_error(precision: int, count: int) -> None:
    """Four standard errors; the seeds are fixed."""
    groups = np.repeat(np.arange(8), count)
    every = pa.concat_arrays([hashes(count, 8 * count + seed) for seed in range(8)])
    found = estimated(registers(every, groups, 8, precision), precision)
    error = 1.04 / math.sqrt(2**precision)
    assert np.abs(found - count).max() <= max(4 * error * count, 1)
    # Not biased to one side.
    assert abs(found.mean() - count) <= max(4 * error * count / math.sqrt(8), 1)


@given(HASHES, st.data())
def test_registers_are_the_same_however_they_are_cut(
    values: list[int], data: st.DataObject
) -> None:
    column = column_of(Partial("registers", "h", precision=5), ["_x0"], [pa.int64()])
    check_cut(values + values[:3], column, pa.int64(), data)


@given(st.lists(st.none() | st.floats(), max_size=30), st.data())
def test_buckets_are_the_same_however_they_are_cut(
    values: list[float | None], data: st.DataObject
) -> None:
    column = column_of(Partial("buckets", "x", precision=6), ["_x0"], [pa.float64()])
    check_cut(values, column, pa.float64(), data)


def check_cut(values: list[Any], column: Any, kind: pa.DataType, data: st.DataObject) -> None:
    def rows(some: list[Any]) -> pa.Table:
        return pa.table(
            {"k": pa.array(["a"] * len(some), pa.string()), "_x0": pa.array(some, kind)}
        )

    cut = data.draw(st.integers(0, len(values)))
    mixed = data.draw(st.permutations(values))
    parts = [
        first_partials(rows(each), ["k"], [column], "op") for each in (mixed[:cut], mixed[cut:])
    ]
    merged = merge_partials(pa.concat_tables(parts), ["k"], [column], "op")
    whole = first_partials(rows(values), ["k"], [column], "op")
    assert merged.equals(whole)


@given(FLOATS, st.integers(1, 13))
def test_a_bucket_is_close_to_its_values(value: float, bits: int) -> None:
    (found,) = middles(buckets(pa.array([value]), bits), bits).to_pylist()
    if math.isinf(value) or abs(value) < sys.float_info.min:
        assert found == value or abs(found) < sys.float_info.min
    else:
        assert abs(found - value) <= 2.0 ** -(bits + 1) * abs(value)


def test_buckets_are_in_the_order_of_their_values() -> None:
    values = [-math.inf, -3.5, -1e-9, 0.0, 1e-9, 2.0, 1e300, math.inf, math.nan]
    found = buckets(pa.array(values), 6).to_pylist()
    assert found == sorted(found)
    told = middles(pa.array(found), 6).to_pylist()
    assert (told[0], told[3], told[7]) == (-math.inf, 0.0, math.inf)
    assert math.isnan(told[8])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_percentiles_keep_to_their_error(share: float) -> None:
    values = np.random.default_rng(7).lognormal(3, 2, 20_000)
    rows = pa.table({"k": pa.array(["a"] * len(values)), "_x0": values})
    column = column_of(Partial("buckets", "x", precision=6), ["_x0"], [pa.float64()])
    kept = first_partials(rows, ["k"], [column], "op")
    asked = Answer("p", "approx_percentile", column.name, pa.float64(), (share,), precision=6)
    (row,) = answered(kept, [asked], [column.name]).to_pylist()
    exact = np.sort(values)[max(math.ceil(len(values) * share), 1) - 1]
    assert abs(row["p"] - exact) <= exact / 128
    assert kept.nbytes < 40_000, "it does not grow with the number of values"


def test_moments_keep_a_small_variance_beside_a_large_mean() -> None:
    values = 1e9 + np.random.default_rng(3).normal(0, 0.5, 9_000)
    column = column_of(Partial("moments", "x"), ["_x0"], [pa.float64()])
    rows = pa.table({"k": pa.array(["a"] * len(values)), "_x0": values})
    parts = [
        first_partials(rows[at : at + 900], ["k"], [column], "op") for at in range(0, 9000, 900)
    ]
    (row,) = merge_partials(pa.concat_tables(parts), ["k"], [column], "op").to_pylist()
    found = row[column.name]
    assert found["n"] == len(values)
    assert math.isclose(found["m2"] / found["n"], float(np.var(values)), rel_tol=1e-7)

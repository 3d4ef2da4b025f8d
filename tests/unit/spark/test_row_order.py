"""Rows in an order of SQL, and keys by number: as a plain sort and plain values give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.spark import row_order
from laminar_dagster.spark.row_order import (
    Place,
    by_numbers,
    differs_from_previous,
    in_order,
    key_codes,
    sorted_by,
    value_codes,
)

KINDS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "whole": (pa.int32(), (-7, 0, 3, 2**31 - 1, -(2**31), None)),
    "long": (pa.int64(), (-(2**63), 2**63 - 1, 0, None)),
    "float": (pa.float64(), (-1.5, -0.0, 0.0, 2.5, math.inf, -math.inf, math.nan, None)),
    "text": (pa.string(), ("", "a", "ab", "b", "é", None)),
    "flag": (pa.bool_(), (True, False, None)),
    "time": (pa.timestamp("us", "UTC"), (0, -5, 10**15, None)),
}
ROWS = st.lists(st.tuples(*(st.sampled_from(values) for _, values in KINDS.values())), max_size=25)
PLACES = st.lists(st.tuples(st.sampled_from(list(KINDS)), st.booleans(), st.booleans()), max_size=3)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(KINDS)
    return pa.table(
        {
            name: pa.array(list(column), pa.int64()).cast(kind)
            if pa.types.is_timestamp(kind)
            else pa.array(list(column), kind, from_pandas=False)
            for (name, (kind, _)), column in zip(KINDS.items(), columns, strict=True)
        }
    )


def plain(value: Any) -> Any:
    """A value that compares as in SQL: NaN is the largest, and there is one zero."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value


@given(ROWS, PLACES, st.booleans())
@settings(max_examples=200)
def test_rows_stand_as_sql_orders_them(
    rows: list[tuple[Any, ...]], order: list[tuple[str, bool, bool]], by_text: bool
) -> None:
    table = table_of(rows)
    first = np.array([row[0] is None for row in rows], np.int64)
    last = ["text"] if by_text else []
    wanted = list(range(len(rows)))
    # Sorted by the last column first: each sort leaves in place what is equal.
    for name, descending, nulls_first in reversed(
        [*order, *((each, False, False) for each in last)]
    ):
        column = list(KINDS).index(name)
        known = [place for place in wanted if rows[place][column] is not None]
        nulls = [place for place in wanted if rows[place][column] is None]
        # Python leaves what is equal in its order when it sorts in reverse, too.
        known.sort(key=lambda place: plain(rows[place][column]), reverse=descending)
        wanted = nulls + known if nulls_first else known + nulls
    wanted.sort(key=lambda place: first[place])
    places = [Place(*each) for each in order]
    assert in_order(table, [first], places, last).tolist() == wanted


@pytest.mark.parametrize("too_many", [2**62, 10])
@given(ROWS, st.lists(st.sampled_from(list(KINDS)), max_size=4))
@settings(max_examples=100)
def test_keys_have_the_same_number_if_they_are_alike(
    too_many: int, rows: list[tuple[Any, ...]], names: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "_TOO_MANY", too_many)
        codes = key_codes(table_of(rows), names).tolist()
    keys = [tuple(plain(row[list(KINDS).index(name)]) for name in names) for row in rows]
    assert len(set(zip(codes, keys, strict=True))) == len(set(codes)) == len(set(keys))


NUMBERS = st.sampled_from([0, 1, -1, 7, 2**31, -(2**62), 2**63 - 1, -(2**63)])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20), st.integers(1, 3))
@settings(max_examples=200)
def test_numbers_give_the_same_order_one_by_one_and_as_one(
    rows: list[tuple[int, int, int]], count: int
) -> None:
    numbers = [np.array([row[place] for row in rows], np.int64) for place in range(count)]
    wanted = sorted(range(len(rows)), key=lambda place: rows[place][:count])
    assert by_numbers(numbers).tolist() == wanted


@given(ROWS, st.lists(st.sampled_from(list(KINDS)), max_size=4))
@settings(max_examples=200)
def test_rows_are_sorted_as_arrow_sorts_them(rows: list[tuple[Any, ...]], names: list[str]) -> None:
    table = table_of(rows).append_column("place", pa.array(range(len(rows)), pa.int64()))
    by = [*dict.fromkeys(names), "place"]
    wanted = table.sort_by([(name, "ascending") for name in by])
    assert sorted_by(table, by).column("place").equals(wanted.column("place"))
    assert sorted_by(table, []) is table


FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan])
NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "list": (pa.list_(pa.float64()), st.none() | st.lists(FLOATS, max_size=2)),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]),
        st.none()
        | st.fixed_dictionaries(
            {
                "a": st.none() | st.sampled_from(["x", ""]),
                "b": st.none() | st.lists(st.integers(0, 1), max_size=2),
            }
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), max_size=2),
    ),
}


def frozen(value: Any) -> Any:
    """A value that is equal where two are alike."""
    if isinstance(value, dict):
        return tuple((name, frozen(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return ("list", *map(frozen, value))
    return (type(value).__name__, plain(value))


@pytest.mark.parametrize("name", NESTED)
@given(st.data(), st.integers(0, 3))
@settings(max_examples=100)
def test_nested_values_have_the_same_number_if_they_are_alike(
    name: str, data: st.DataObject, skipped: int
) -> None:
    kind, values = NESTED[name]
    drawn = data.draw(st.lists(values, max_size=12))
    array = pa.array(drawn, kind).slice(min(skipped, len(drawn)))
    known = [frozen(each) for each in drawn[min(skipped, len(drawn)) :]]
    codes = value_codes(array).tolist()
    assert len(set(zip(codes, known, strict=True))) == len(set(codes)) == len(set(known))
    rows = pa.table({"value": array, "place": pa.array(range(len(known)), pa.int64())})
    ordered = sorted_by(rows, ["value", "place"])
    begins = differs_from_previous(ordered, ["value"])
    assert int(begins.sum()) == len(set(known))

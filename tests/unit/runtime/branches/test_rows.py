"""Rows are compared as often as they occur, exactly, whatever their types."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.runtime.branches.rows import compare_rows

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([None, "", "a", "b"]),
        st.sampled_from([None, 0.0, -0.0, 0.1, 0.30000000000000004, 0.3]),
    ),
    max_size=8,
)
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[n] for row in rows], SCHEMA.field(n).type) for n in range(3)], schema=SCHEMA
    )


def told(found: pa.Table) -> Counter[str]:
    # As text: -0.0 is another value than 0.0 here.
    return Counter(repr(tuple(row.values())) for row in found.to_pylist())


@given(ROWS, ROWS)
def test_it_is_the_difference_of_two_bags(
    old: list[tuple[object, ...]], new: list[tuple[object, ...]]
) -> None:
    found = compare_rows(table(old), table(new))
    before, after = Counter(map(repr, old)), Counter(map(repr, new))
    assert told(found.only_old) == before - after
    assert told(found.only_new) == after - before


def test_every_type_can_be_compared() -> None:
    values: dict[str, list[object]] = {
        "when": [datetime(2026, 1, 1, tzinfo=UTC), None],
        "price": [Decimal("1.50"), Decimal("2.50")],
        "raw": [b"a", b"\x00"],
        "flag": [True, None],
        "many": [[1, 2], []],
        "parts": [{"a": 1, "b": None}, None],
        "nothing": [None, None],
    }
    whole = pa.table(values)
    coded = whole.append_column("code", pa.array(["x", "y"]).dictionary_encode())
    same = compare_rows(coded, coded.take([1, 0]))
    assert (same.only_old.num_rows, same.only_new.num_rows) == (0, 0)
    for name in values:
        if name != "nothing":
            other = compare_rows(coded, coded.take([0, 0]))
            assert (other.only_old.num_rows, other.only_new.num_rows) == (1, 1)


def test_a_wider_type_and_another_order_of_columns_are_no_difference() -> None:
    old = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    new = pa.table({"b": ["y", "x"], "a": pa.array([2, 1], pa.int64())})
    found = compare_rows(old, new)
    assert found.only_old.num_rows == found.only_new.num_rows == 0


def test_other_columns_are_other_rows() -> None:
    old, new = pa.table({"a": [1]}), pa.table({"a": [1], "b": [2]})
    found = compare_rows(old, new)
    assert (found.only_old, found.only_new) == (old, new)
    texts = compare_rows(pa.table({"a": ["x"]}), pa.table({"a": [1]}))
    assert texts.only_old.num_rows == texts.only_new.num_rows == 1


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (pa.array(["01"]), pa.array([1]), False),
        (pa.array([1]), pa.array(["1"]), False),
        (pa.array([1]), pa.array([1.0]), False),
        (pa.array([1]), pa.array([True]), False),
        (pa.array([1]), pa.array([Decimal(1)]), False),
        (pa.array([["01"]]), pa.array([[1]]), False),
        (pa.array([{"a": "1"}]), pa.array([{"a": 1}]), False),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), pa.array([MOMENT], pa.date32()), False),
        (
            pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")),
            pa.array([MOMENT], pa.timestamp("us", "UTC")),
            False,
        ),
        (pa.array([1.5], pa.float32()), pa.array([1.5]), True),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.50")]), True),
        (pa.array(["x"]), pa.array(["x"], pa.large_string()), True),
        (pa.array(["x"]).dictionary_encode(), pa.array(["x"]), True),
        (pa.array([[1]], pa.list_(pa.int32())), pa.array([[1]]), True),
        (pa.array([[1]], pa.list_(pa.field("element", pa.int64()))), pa.array([[1]]), True),
        (pa.array([{"a": 1}]), pa.array([{"b": 1}]), False),
        (
            pa.array([MOMENT], pa.timestamp("ms", "UTC")),
            pa.array([MOMENT], pa.timestamp("us", "UTC")),
            True,
        ),
        (pa.array([None]), pa.array([None], pa.string()), True),
    ],
)
def test_values_are_the_same_within_a_family_of_types_alone(
    old: pa.Array, new: pa.Array, is_same: bool
) -> None:
    found = compare_rows(pa.table({"a": old}), pa.table({"a": new}))
    assert found.only_old.num_rows == found.only_new.num_rows == (0 if is_same else 1)

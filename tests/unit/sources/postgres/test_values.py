"""Texts of values into columns: what does not fit is bad, and nothing else is lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sources.postgres.values import converted, suits

ELEMENT = pa.list_(pa.field("element", pa.string()))


def literal(values: list[str | None]) -> str:
    """As ``array_out`` writes it, with quotes wherever they are allowed."""
    parts = []
    for each in values:
        if each is None:
            parts.append("NULL")
        else:
            escaped = each.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
    return "{" + ",".join(parts) + "}"


texts = st.text(st.sampled_from('a,{}"\\ü \n'), max_size=6)


@given(st.lists(st.none() | st.lists(st.none() | texts, max_size=4), max_size=6))
def test_arrays_come_back(rows: list[list[str | None] | None]) -> None:
    column = pa.array([None if row is None else literal(row) for row in rows], pa.string())
    found, bad = converted(column, ELEMENT)
    assert bad == {}
    assert found.to_pylist() == rows
    sliced, _ = converted(column.slice(1), ELEMENT)
    assert sliced.to_pylist() == rows[1:]


@given(st.lists(st.none() | st.binary(max_size=5), max_size=6))
def test_bytes_come_back(rows: list[bytes | None]) -> None:
    column = pa.array([None if row is None else r"\x" + row.hex() for row in rows], pa.string())
    found, bad = converted(column, pa.binary())
    assert (found.to_pylist(), bad) == (rows, {})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("t", pa.bool_(), True),
        ("12.50", pa.decimal128(10, 2), Decimal("12.50")),
        ("-Infinity", pa.float64(), float("-inf")),
        ("{1,NULL}", pa.list_(pa.field("element", pa.int32())), [1, None]),
        ("{t,f}", pa.list_(pa.field("element", pa.bool_())), [True, False]),
    ],
)
def test_values(text: str, kind: pa.DataType, value: Any) -> None:
    found, bad = converted(pa.array([text, None]), kind)
    assert (found.to_pylist(), bad) == ([value, None], {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("yes", pa.bool_()),
        ("12.345", pa.decimal128(10, 2)),
        ("NaN", pa.decimal128(10, 2)),
        ("infinity", pa.timestamp("us", tz="UTC")),
        ("0044-03-15 BC", pa.date32()),
        ("{{1},{2}}", pa.list_(pa.field("element", pa.int32()))),
        ("[0:1]={1,2}", pa.list_(pa.field("element", pa.int32()))),
        ("{1,x}", pa.list_(pa.field("element", pa.int32()))),
        (r"\xzz", pa.binary()),
        ("00", pa.binary()),
        (r"\x0", pa.binary()),
    ],
)
def test_values_that_do_not_fit(text: str, kind: pa.DataType) -> None:
    found, bad = converted(pa.array([None, text]), kind)
    assert found.to_pylist() == [None, None]
    assert [*bad] == [1]


@pytest.mark.parametrize(
    ("oid", "kind", "fits"),
    [
        (20, pa.int64(), True),
        (20, pa.int32(), False),
        (21, pa.int32(), True),
        (1700, pa.decimal128(38, 9), True),
        (1184, pa.timestamp("us"), False),
        (1114, pa.timestamp("us"), True),
        (1007, pa.list_(pa.int32()), True),
        (1007, pa.list_(pa.int16()), False),
        (1007, pa.int32(), False),
        (2950, pa.binary(), False),
        (2950, pa.string(), True),
        (99_999, pa.int32(), True),
    ],
)
def test_which_types_suit(oid: int, kind: pa.DataType, fits: bool) -> None:
    assert suits(oid, kind) is fits

"""The same rows give the same bytes, whatever lies below nulls and however they were cut."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.spark.arrow_files import file_bytes, file_table, schema_fingerprint

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [1, None, -3, 4, None]),
    "tiny": (pa.int8(), [1, None, -3, 4, None]),
    "double": (pa.float64(), [1.5, None, float("inf"), -0.0, None]),
    "text": (pa.string(), ["a", None, "", "ü", "long text"]),
    "bytes": (pa.binary(), [b"a", None, b"", b"\xff", None]),
    "flag": (pa.bool_(), [True, None, False, True, None]),
    "day": (pa.date32(), [dt.date(2026, 1, 1), None, dt.date(1970, 1, 1), None, None]),
    "time": (pa.timestamp("us", "UTC"), [1, None, 3, 4, None]),
    "money": (pa.decimal128(10, 2), [Decimal("1.50"), None, Decimal("-2.00"), None, None]),
    "wide": (pa.decimal128(38, 0), [Decimal(10) ** 30, None, None, None, Decimal(0)]),
    "list": (pa.list_(pa.int64()), [[1, 2], None, [], [3], None]),
    "nothing": (pa.null(), [None] * 5),
    "full": (pa.int32(), [1, 2, 3, 4, 5]),
}


def table() -> pa.Table:
    return pa.table({name: pa.array(rows, kind) for name, (kind, rows) in COLUMNS.items()})


def test_the_rows_come_back() -> None:
    assert file_table(file_bytes(table())).to_pylist() == table().to_pylist()


@pytest.mark.parametrize("cut", range(6))
def test_how_rows_were_cut_does_not_matter(cut: int) -> None:
    pieces = pa.concat_tables([table().slice(0, cut), table().slice(cut)])
    assert file_bytes(pieces) == file_bytes(table())


def test_a_slice_is_as_good_as_a_copy() -> None:
    longer = pa.concat_tables([table(), table(), table()])
    assert file_bytes(longer.slice(5, 5)) == file_bytes(table())


def test_what_lies_below_a_null_does_not_matter() -> None:
    values = pa.array([1, 99, 3], pa.int64()).buffers()[1]
    others = pa.array([1, 55, 3], pa.int64()).buffers()[1]
    valid = pa.py_buffer(bytes([0b101]))
    first = pa.Array.from_buffers(pa.int64(), 3, [valid, values])
    second = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(bytes([0b11111101])), others])
    assert first.equals(second)
    assert file_bytes(pa.table({"x": first})) == file_bytes(pa.table({"x": second}))


def test_an_empty_table() -> None:
    empty = table().slice(0, 0)
    assert file_table(file_bytes(empty)).schema.equals(empty.schema)
    assert file_bytes(empty) == file_bytes(pa.Table.from_batches([], schema=empty.schema))


def test_a_fingerprint_follows_names_and_types() -> None:
    plain = schema_fingerprint(pa.schema([("a", pa.int64())]))
    assert plain == schema_fingerprint(pa.schema([("a", pa.int64())]))
    assert plain != schema_fingerprint(pa.schema([("b", pa.int64())]))
    assert plain != schema_fingerprint(pa.schema([("a", pa.int32())]))

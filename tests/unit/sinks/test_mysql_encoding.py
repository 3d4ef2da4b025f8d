"""Rows as LOAD DATA and INSERT read them, read back here by the words of the manual."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.mysql.columns import ColumnType, MysqlColumn, encoder_for, type_for
from laminar_dagster.sinks.mysql.texts import stream_of, tuples_of

VALUE = st.text(max_size=9) | st.sampled_from(["\\N", "\\", "\t", "\n", "\0", "NULL", "'", "\\t"])


def columns_of(schema: pa.Schema) -> list[MysqlColumn]:
    columns = []
    for field in schema:
        kind = type_for(field)
        found = encoder_for(field, kind)
        assert found is not None
        columns.append(MysqlColumn(field.name, field.name, kind, *found))
    return columns


def streamed(rows: pa.RecordBatch) -> list[list[bytes | None]]:
    """Fields as the server takes them out of a stream."""
    data = bytes(stream_of(columns_of(rows.schema), rows, ()))
    assert data.endswith(b"\n")
    lines: list[list[bytes | None]] = []
    field, line, place = b"", [], 0
    is_null = False
    while place < len(data):
        byte = data[place : place + 1]
        if byte == b"\\":
            place += 1
            escaped = data[place : place + 1]
            is_null = escaped == b"N"
            field += {b"t": b"\t", b"n": b"\n", b"0": b"\0", b"N": b""}.get(escaped, escaped)
        elif byte in b"\t\n":
            line.append(None if is_null else field)
            field, is_null = b"", False
            if byte == b"\n":
                lines.append(line)
                line = []
        else:
            field += byte
        place += 1
    assert not line
    return lines


def inserted(rows: pa.RecordBatch) -> list[list[bytes | None]]:
    """Values as the server takes them out of a statement."""
    offsets, data = tuples_of(columns_of(rows.schema), rows, ())
    found: list[list[bytes | None]] = []
    for start, end in pairwise(offsets):
        row = bytes(data[start:end])
        assert row.isascii()
        assert row[:1] == b"(" and row[-2:] == b"),"
        values: list[bytes | None] = []
        for part in row[1:-2].split(b","):
            if part == b"NULL":
                values.append(None)
            elif digits := re.fullmatch(rb"(?:_utf8mb4 )?X'([0-9a-f]*)'", part):
                values.append(bytes.fromhex(digits[1].decode()))
            else:
                plain = re.fullmatch(rb"'([-+.:0-9A-Za-z ]*)'", part)
                assert plain is not None, part
                values.append(plain[1])
        found.append(values)
    return found


@given(
    texts=st.lists(VALUE | st.none(), min_size=1, max_size=6),
    binary=st.lists(st.binary(max_size=9) | st.none(), min_size=6, max_size=6),
    first=st.integers(0, 5),
)
def test_no_value_can_be_taken_for_something_else(
    texts: list[str | None], binary: list[bytes | None], first: int
) -> None:
    rows = pa.record_batch(
        {"t": pa.array(texts, pa.string()), "b": pa.array(binary[: len(texts)], pa.binary())}
    ).slice(min(first, len(texts) - 1))
    expected = [
        [None if row["t"] is None else row["t"].encode(), row["b"]] for row in rows.to_pylist()
    ]
    assert inserted(rows) == expected
    hexadecimal = [[text, None if data is None else data.hex().encode()] for text, data in expected]
    assert streamed(rows) == hexadecimal


def test_plain_values() -> None:
    rows = pa.record_batch(
        {
            "i": pa.array([-1, None], pa.int64()),
            "u": pa.array([2**64 - 1, 0], pa.uint64()),
            "f": pa.array([1e300, 0.1], pa.float64()),
            "h": pa.array([0.1, None], pa.float32()),
            "d": pa.array([Decimal("-0.01"), None], pa.decimal128(9, 2)),
            "b": pa.array([True, False]),
            "t": pa.array([-1, None], pa.timestamp("us", "Asia/Tokyo")),
            "n": pa.array([1_000, 0], pa.timestamp("ns")),
            "c": pa.array([86_399_999, 0], pa.time32("ms")),
            "y": pa.array([-719_162, None], pa.date32()),
            "s": pa.array([5, None], pa.duration("ms")),
        }
    )
    assert streamed(rows)[0] == inserted(rows)[0]
    assert inserted(rows) == [
        [
            b"-1",
            b"18446744073709551615",
            b"1e+300",
            b"0.10000000149011612",
            b"-0.01",
            b"1",
            b"1969-12-31 23:59:59.999999",
            b"1970-01-01 00:00:00.000001",
            b"23:59:59.999000",
            b"0001-01-01",
            b"5",
        ],
        [
            None,
            b"0",
            b"0.1",
            *(None, None, b"0", None),
            b"1970-01-01 00:00:00.000000",
            b"00:00:00.000000",
            *(None, None),
        ],
    ]


def test_values_to_blame_are_shown_with_their_key() -> None:
    rows = pa.record_batch({"k": [1, 2, 3], "x": [0.5, float("nan"), float("inf")]})
    with pytest.raises(Unwritable) as caught:
        stream_of(columns_of(rows.schema), rows, ("k",))
    assert str(caught.value) == (
        "column `x` has 2 values that are NaN or infinite, which MySQL does not have,"
        " such as k=2, x=nan; k=3, x=inf; the first is in row 1 of 3"
    )


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (pa.decimal256(66, 2), "at most 65 digits"),
        (pa.decimal128(38, 31), "30 of them after the point"),
        (pa.null(), "MySQL cannot hold"),
        (pa.month_day_nano_interval(), "MySQL cannot hold"),
    ],
)
def test_types_that_mysql_does_not_have(kind: pa.DataType, problem: str) -> None:
    with pytest.raises(Unwritable, match=problem):
        type_for(pa.field("x", kind))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (pa.int8(), "tinyint"),
        (pa.uint32(), "int unsigned"),
        (pa.float32(), "double"),
        (pa.decimal128(5, -2), "decimal(7,0)"),
        (pa.dictionary(pa.int32(), pa.string()), "longtext"),
        (pa.timestamp("s", "UTC"), "datetime(6)"),
        (pa.list_(pa.int8()), "json"),
    ],
)
def test_types_that_are_made(kind: pa.DataType, shown: str) -> None:
    field = pa.field("x", kind)
    assert type_for(field).shown == shown
    assert encoder_for(field, type_for(field)) is not None


def test_a_dictionary_is_what_it_stands_for() -> None:
    rows = pa.record_batch({"x": pa.array(["b", None, "a", "b"]).dictionary_encode()})
    assert streamed(rows) == [[b"b"], [None], [b"a"], [b"b"]]


def test_a_column_that_allows_no_null() -> None:
    found = encoder_for(pa.field("x", pa.int8()), ColumnType("int", "int", is_nullable=False))
    assert found is not None
    column = MysqlColumn("x", "x", ColumnType("int", "int"), *found)
    rows = pa.record_batch({"x": pa.array([1, None], pa.int8())})
    with pytest.raises(Unwritable, match="1 values that are null"):
        stream_of([column], rows, ())

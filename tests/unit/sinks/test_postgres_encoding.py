"""Rows as PostgreSQL's binary COPY has them, read back here by the words of its manual."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sinks import portions
from laminar_dagster.sinks.bad_values import BadValues
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.postgres.columns import (
    ColumnType,
    PostgresColumn,
    encode,
    encoder_for,
    type_for,
)
from laminar_dagster.sinks.postgres.numeric import decimal_pieces

EXACT = Context(prec=100)


def column_of(name: str, kind: pa.DataType, target: ColumnType | None = None) -> PostgresColumn:
    field = pa.field(name, kind)
    chosen = target or type_for(field)
    found = encoder_for(field, chosen)
    assert found is not None
    return PostgresColumn(name, name, chosen, found)


def rows_sent(table: pa.Table, *targets: ColumnType | None, key: tuple[str, ...] = ()) -> Any:
    """The fields of each row, as bytes."""
    chosen: Sequence[ColumnType | None] = targets or [None] * table.num_columns
    columns = [
        column_of(field.name, field.type, target)
        for field, target in zip(table.schema, chosen, strict=True)
    ]
    data = b"".join(encode(columns, batch, key).to_pybytes() for batch in portions.batches(table))
    rows, place = [], 0
    while place < len(data):
        (count,) = struct.unpack_from(">h", data, place)
        place += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", data, place)
            place += 4
            row.append(None if length == -1 else data[place : place + length])
            place += max(length, 0)
        rows.append(row)
    assert place == len(data)
    return rows


def values_sent(array: pa.Array, target: ColumnType | None = None) -> list[bytes | None]:
    return [row[0] for row in rows_sent(pa.table({"x": array}), target)]


def number_of(data: bytes) -> Decimal:
    """A numeric, as the server's ``numeric_recv`` takes it."""
    count, weight, sign, scale = struct.unpack_from(">hhHh", data)
    digits = struct.unpack_from(f">{count}h", data, 8)
    assert len(data) == 8 + 2 * count
    assert all(0 <= digit < 10_000 for digit in digits)
    total = Decimal(0)
    for place, digit in enumerate(digits):
        part = Decimal(digit).scaleb(4 * (weight - place), EXACT)
        total = EXACT.add(total, part)
    assert sign in (0, 0x4000)
    total = total.quantize(Decimal(1).scaleb(-scale, EXACT), context=EXACT)
    return total.copy_negate() if sign else total


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_is_its_fields_and_their_lengths() -> None:
    table = pa.table(
        {
            "a": pa.array([1, 2, None], pa.int32()),
            "b": pa.array([-1, 0, 1], pa.int64()),
            "c": pa.array(["x", None, ""]),
            "d": pa.array([0.5, 1.5, 2.5]),
            "e": pa.array([b"\0", b"", None]),
        }
    )
    assert rows_sent(table) == [
        [b"\0\0\0\1", b"\xff" * 8, b"x", struct.pack(">d", 0.5), b"\0"],
        [b"\0\0\0\2", bytes(8), None, struct.pack(">d", 1.5), b""],
        [None, b"\0\0\0\0\0\0\0\1", b"", struct.pack(">d", 2.5), None],
    ]


@pytest.mark.parametrize("start", [0, 1, 63, 64, 100])
def test_a_slice_sends_its_own_rows_only(start: int) -> None:
    number = 130
    table = pa.table(
        {
            "i": pa.array([None if row % 7 == 0 else row for row in range(number)], pa.int16()),
            "s": pa.array([None if row % 5 == 0 else f"s{row}" for row in range(number)]),
            "d": pa.array([Decimal(row) for row in range(number)], pa.decimal128(20, 3)),
            "b": pa.array([None if row % 3 == 0 else row % 2 == 0 for row in range(number)]),
            "t": pa.array([*range(number)], pa.timestamp("us")),
            "u": pa.array([str(uuid.UUID(int=row)) for row in range(number)]),
        }
    )
    kind = ColumnType("uuid", -1, "uuid")
    targets = [None, None, None, None, None, kind]
    whole = rows_sent(table, *targets)
    assert rows_sent(table.slice(start, 20), *targets) == whole[start : start + 20]


def test_a_batch_that_is_too_large_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "_BYTES_PER_BATCH", 1000)
    table = pa.table({"s": [letter * 400 for letter in "abcdefgh"] + ["z" * 5000]})
    sizes = [batch.num_rows for batch in portions.batches(table)]
    assert max(sizes) <= 2
    assert sum(sizes) == 9
    assert [row[0][:1] for row in rows_sent(table)] == [*map(str.encode, "abcdefghz")]


def test_portions_keep_the_order_and_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "_BYTES_PER_STATEMENT", 800)
    files = [pa.table({"n": pa.array([*range(at, at + size)], pa.int64())}) for at, size in SIZES]
    found = [*portions.portions(iter(files))]
    assert [n for portion in found for n in portion.column("n").to_pylist()] == [
        n for at, size in SIZES for n in range(at, at + size)
    ]
    assert all(portion.nbytes <= 800 for portion in found)
    assert len(found) < 10


SIZES = [(0, 10), (10, 0), (10, 20), (30, 60), (90, 330), (420, 1)]


def test_of_no_rows_the_columns_are_known() -> None:
    empty = pa.table({"n": pa.array([], pa.int64())})
    assert [portion.schema for portion in portions.portions(iter([empty, empty]))] == [empty.schema]
    assert [*portions.portions(iter([]))] == []


# --- numbers --------------------------------------------------------------------------------------


@st.composite
def decimals(draw: st.DrawFn) -> pa.Array:
    width = draw(st.sampled_from([32, 64, 128, 256]))
    most = {32: 9, 64: 18, 128: 38, 256: 76}[width]
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(0, precision))
    largest = 10**precision - 1
    edges = [0, 1, -1, largest, -largest, 9999, 10_000, -10_000, 2**63 - 1, 2**64, -(2**64)]
    fitting = st.sampled_from([edge for edge in edges if abs(edge) <= largest])
    numbers = draw(
        st.lists(st.none() | fitting | st.integers(-largest, largest), min_size=1, max_size=20)
    )
    kind = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[width]
    values = [None if each is None else Decimal(each).scaleb(-scale, EXACT) for each in numbers]
    return pa.array(values, kind(precision, scale))


@given(decimals())
def test_a_decimal_of_any_width_keeps_every_digit(array: pa.Array) -> None:
    sent = values_sent(array)
    assert [data and number_of(data) for data in sent] == array.to_pylist()
    scales = {struct.unpack_from(">h", data, 6)[0] for data in sent if data}
    assert scales <= {array.type.scale}


def test_a_decimal_with_a_negative_scale_is_a_whole_number() -> None:
    array = pa.array([Decimal("12300"), Decimal("-100"), None], pa.decimal128(5, -2))
    assert [data and number_of(data) for data in values_sent(array)] == [12300, -100, None]
    assert type_for(pa.field("x", array.type)).shown == "numeric(7,0)"


@pytest.mark.parametrize(
    ("precision", "value"), [(5, 10**6), (5, -(10**6)), (5, 2**64), (5, -(2**70)), (30, 10**30)]
)
def test_a_decimal_with_more_digits_than_its_type_is_refused(precision: int, value: int) -> None:
    raw = value.to_bytes(16, "little", signed=True) + bytes(16)
    kind = pa.decimal128(precision, 2)
    array = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(raw)])
    with pytest.raises(BadValues) as caught:
        decimal_pieces(array)
    assert caught.value.rows.tolist() == [True, False]
    # Behind a null may stand anything.
    hidden = pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\2"), pa.py_buffer(raw)])
    assert decimal_pieces(hidden)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("prefix", ["", "u"])
def test_a_whole_number_as_numeric(kind: str, prefix: str) -> None:
    arrow = getattr(pa, prefix + kind)()
    limits = np.iinfo(arrow.to_pandas_dtype())
    numbers = [int(limits.min), int(limits.max), 0, 1, None]
    sent = values_sent(pa.array(numbers, arrow), ColumnType("numeric", -1, "numeric"))
    assert [data and number_of(data) for data in sent] == numbers


# --- other values ---------------------------------------------------------------------------------


def test_uuids_from_text_and_from_bytes() -> None:
    kind = ColumnType("uuid", -1, "uuid")
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    for layout in (pa.string(), pa.large_string(), pa.string_view()):
        texts = pa.array([str(one), str(one).upper(), one.hex, None], layout)
        assert values_sent(texts, kind) == [one.bytes] * 3 + [None]
    assert values_sent(pa.array([one.bytes, None], pa.binary(16)), kind) == [one.bytes, None]


@pytest.mark.parametrize("text", ["", "x", "0" * 31, "0" * 33, "g" + "0" * 31, "é" * 16])
def test_what_is_no_uuid_is_refused_with_the_row(text: str) -> None:
    table = pa.table({"k": [7, 8, 9], "x": ["0" * 32, text, None]})
    kind = ColumnType("uuid", -1, "uuid")
    with pytest.raises(Unwritable, match=r"column `x` has 1 values that are no UUIDs") as caught:
        rows_sent(table, None, kind, key=("k",))
    assert "k=8" in str(caught.value)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([1, 1000], pa.timestamp("ns")), "no whole microseconds"),
        (pa.array([-1], pa.duration("ns")), "no whole microseconds"),
        (pa.array([1], pa.time64("ns")), "no whole microseconds"),
        (pa.array([2**62], pa.timestamp("s")), "out of the range"),
        (pa.array([-(2**63)], pa.timestamp("us", "UTC")), "out of the range"),
        (pa.array([2**62], pa.duration("ms")), "out of the range"),
        (pa.array([-(2**63)], pa.duration("s")), "out of the range"),
        (pa.array([2**31 - 1], pa.date32()), "out of the range"),
        (pa.array([-(2**31)], pa.date32()), "out of the range"),
    ],
    ids=str,
)
def test_a_time_that_has_no_form_is_refused(array: pa.Array, reason: str) -> None:
    with pytest.raises(Unwritable, match=reason) as caught:
        values_sent(array)
    assert "such as x=" in str(caught.value)


def test_times_at_the_edges() -> None:
    last = 2**63 - 1
    sent = values_sent(pa.array([last, 0, None], pa.timestamp("us")))
    micros = 946_684_800_000_000
    assert sent == [struct.pack(">q", last - micros), struct.pack(">q", -micros), None]
    assert values_sent(pa.array([date(2000, 1, 1), date(1999, 12, 31)])) == [
        bytes(4),
        b"\xff\xff\xff\xff",
    ]
    assert values_sent(pa.array([time(0, 0, 1)])) == [struct.pack(">q", 10**6)]
    assert values_sent(pa.array([1, -1], pa.duration("s"))) == [
        struct.pack(">qii", 10**6, 0, 0),
        struct.pack(">qii", -(10**6), 0, 0),
    ]
    noon = datetime(2000, 1, 1, 12, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        zoned = pa.array([noon]).cast(pa.timestamp(unit, "America/New_York"))
        assert values_sent(zoned) == [struct.pack(">q", 43_200_000_000)]


def test_lengths_count_characters() -> None:
    three = ColumnType("varchar", 3 + 4, "character varying(3)")
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        array = pa.array(["éé", "abc", None], kind)
        assert values_sent(array, three) == ["éé".encode(), b"abc", None]
    with pytest.raises(Unwritable, match="at most 3 characters, such as x='abc '"):
        values_sent(pa.array(["abc "]), three)
    exact = ColumnType("bpchar", 2 + 4, "character(2)")
    assert values_sent(pa.array(["DE"]), exact) == [b"DE"]
    with pytest.raises(Unwritable, match="do not have 2 characters"):
        values_sent(pa.array(["D"]), exact)


def test_json_is_text_and_jsonb_has_a_version() -> None:
    array = pa.array([[1, None], None, []])
    assert values_sent(array) == [b"\x01[1,null]", None, b"\x01[]"]
    for name in ("json", "text"):
        assert values_sent(array, ColumnType(name, -1, name)) == [b"[1,null]", None, b"[]"]
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(Unwritable, match=r"column `x` has 1 values that hold a key twice"):
        values_sent(twice)


def test_a_document_that_is_too_long_is_shown() -> None:
    kind = ColumnType("varchar", 4 + 4, "character varying(4)")
    with pytest.raises(Unwritable, match=r"such as x=\[1, 2, 3\]"):
        values_sent(pa.array([[1], [1, 2, 3]]), kind)


def test_a_sample_is_small() -> None:
    kind = ColumnType("varchar", 1 + 4, "character varying(1)")
    with pytest.raises(Unwritable) as caught:
        values_sent(pa.array(["x" * 1000] * 500), kind)
    assert "has 500 values" in str(caught.value)
    assert len(str(caught.value)) < 1000


# --- which column takes which type ----------------------------------------------------------------

PLAIN = {
    name: ColumnType(name, -1, name)
    for name in (
        "bool int2 int4 int8 numeric float4 float8 text varchar bpchar citext json jsonb uuid enum"
        " bytea date time timestamp timestamptz interval timetz money inet xml oid"
    ).split()
}
TAKEN: list[tuple[pa.DataType, str]] = [
    (pa.int8(), "int2 int4 int8 numeric float4 float8"),
    (pa.uint8(), "int2 int4 int8 numeric float4 float8"),
    (pa.int16(), "int2 int4 int8 numeric float4 float8"),
    (pa.uint16(), "int4 int8 numeric float4 float8"),
    (pa.int32(), "int4 int8 numeric float8"),
    (pa.uint32(), "int8 numeric float8"),
    (pa.int64(), "int8 numeric"),
    (pa.uint64(), "numeric"),
    (pa.float16(), "float4 float8"),
    (pa.float32(), "float4 float8"),
    (pa.float64(), "float8"),
    (pa.decimal128(9, 2), "numeric"),
    (pa.bool_(), "bool"),
    (pa.string(), "text varchar bpchar citext json jsonb uuid enum"),
    (
        pa.dictionary(pa.int8(), pa.large_string()),
        "text varchar bpchar citext json jsonb uuid enum",
    ),
    (pa.string_view(), "text varchar bpchar citext json jsonb uuid enum"),
    (pa.binary(), "bytea"),
    (pa.binary(16), "bytea uuid"),
    (pa.binary(15), "bytea"),
    (pa.date32(), "date"),
    (pa.date64(), "date"),
    (pa.time32("s"), "time"),
    (pa.time64("us"), "time"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", "UTC"), "timestamptz"),
    (pa.duration("us"), "interval"),
    (pa.list_(pa.int8()), "json jsonb text varchar"),
    (pa.struct([("a", pa.int8())]), "json jsonb text varchar"),
    (pa.map_(pa.string(), pa.int8()), "json jsonb text varchar"),
]


@pytest.mark.parametrize(("kind", "taken"), TAKEN, ids=lambda each: str(each)[:40])
def test_which_columns_take_a_type(kind: pa.DataType, taken: str) -> None:
    field = pa.field("x", kind)
    found = {name for name, target in PLAIN.items() if encoder_for(field, target) is not None}
    assert found == {*taken.split()}
    assert type_for(field).name in found


def modified(name: str, *numbers: int) -> ColumnType:
    if name == "numeric":
        precision, scale = numbers
        return ColumnType(name, ((precision << 16) | (scale & 0x7FF)) + 4, name)
    offset = 4 if name in ("varchar", "bpchar") else 0
    return ColumnType(name, numbers[0] + offset, name)


@pytest.mark.parametrize(
    ("kind", "target", "fits"),
    [
        (pa.decimal128(9, 2), modified("numeric", 9, 2), True),
        (pa.decimal128(9, 2), modified("numeric", 10, 3), True),
        (pa.decimal128(9, 2), modified("numeric", 9, 3), False),
        (pa.decimal128(9, 2), modified("numeric", 20, 1), False),
        (pa.decimal128(9, 2), modified("numeric", 8, 2), False),
        (pa.decimal128(9, -2), modified("numeric", 11, 0), True),
        (pa.decimal128(9, -2), modified("numeric", 10, 0), False),
        (pa.decimal128(2, 0), modified("numeric", 2, -2), False),
        (pa.int64(), modified("numeric", 19, 0), True),
        (pa.int64(), modified("numeric", 18, 0), False),
        (pa.int64(), modified("numeric", 20, 2), False),
        (pa.uint64(), modified("numeric", 20, 0), True),
        (pa.uint64(), modified("numeric", 19, 0), False),
        (pa.int8(), modified("numeric", 3, 0), True),
        (pa.timestamp("us"), modified("timestamp", 6), True),
        (pa.timestamp("us"), modified("timestamp", 3), False),
        (pa.timestamp("ms"), modified("timestamp", 3), True),
        (pa.timestamp("s"), modified("timestamp", 0), True),
        (pa.timestamp("us", "UTC"), modified("timestamptz", 5), False),
        (pa.time64("us"), modified("time", 3), False),
        (pa.duration("us"), modified("interval", 0x7FFF0003), False),
    ],
    ids=str,
)
def test_a_column_that_would_round_or_overflow_takes_nothing(
    kind: pa.DataType, target: ColumnType, fits: bool
) -> None:
    assert (encoder_for(pa.field("x", kind), target) is not None) == fits


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.month_day_nano_interval(), pa.list_(pa.month_day_nano_interval()), pa.uuid()],
    ids=str,
)
def test_a_type_that_no_column_takes_is_refused_by_name(kind: pa.DataType) -> None:
    field = pa.field("x", kind)
    with pytest.raises(Unwritable, match=r"`x`.*cast it in the view"):
        encoder_for(field, type_for(field))


@pytest.mark.parametrize("name", ["text", "varchar", "citext", "json", "jsonb", "enum"])
def test_a_text_with_the_character_zero_is_refused_with_the_row(name: str) -> None:
    kind = ColumnType(name, -1, name)
    table = pa.table({"k": [7, 8], "x": ["fine", "a\0b"]})
    made = encoder_for(table.schema.field("x"), kind)
    assert made
    column = PostgresColumn("x", "x", kind, made)
    with pytest.raises(Unwritable, match=r"hold the character U\+0000.*k=8"):
        encode([column], table.select(["k", "x"]).to_batches()[0], ("k",))


def test_a_document_for_jsonb_must_not_spell_the_character_zero() -> None:
    kind = ColumnType("jsonb", -1, "jsonb")
    nested = pa.array([{"a": "\0"}])
    for array, is_bad in (
        (nested, True),
        (pa.array([r'"\u0000"']), True),
        (pa.array([r'"\\\u0000"']), True),
        (pa.array([r'"\\u0000"']), False),
        (pa.array([{"a": r"\u0000"}]), False),
    ):
        made = encoder_for(pa.field("x", array.type), kind)
        assert made
        if is_bad:
            with pytest.raises(BadValues, match=r"U\+0000"):
                made(array)
        else:
            made(array)

"""Avro messages: what the schema allows, what the columns allow, and what is hostile."""

from __future__ import annotations

import io
import json
import pickle
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from laminar_dagster.sources.formats import avro_walk
from laminar_dagster.sources.formats.arrow_types import arrow_type
from laminar_dagster.sources.formats.avro import AvroDecoder
from tests.unit.sources.formats.messages import by_place, records_of


@pytest.fixture(params=[0, 16], ids=["in rounds", "one by one"], autouse=True)
def few_lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_walk, "FEW_LANES", request.param)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Event",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def decoder(writer: Any, /, **columns: str) -> AvroDecoder:
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    return AvroDecoder(schema, writer_schema=json.dumps(writer))


def encoded(writer: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer), value)
    return out.getvalue()


def long(value: int) -> bytes:
    """A zigzag varint."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def decode(
    reader: AvroDecoder, *messages: bytes
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    return by_place(reader.decode(records_of(messages)))


def test_no_records() -> None:
    found = decoder(record(a="int"), a="int").decode(records_of([]))
    assert found.rows.num_rows == 0
    assert found.bad == []


@pytest.mark.parametrize("value", [0, -1, 63, 64, 2**31, 2**56, 2**62, 2**63 - 1, -(2**63)])
def test_longs_of_every_length(value: int) -> None:
    rows, reasons = decode(decoder(record(a="long"), a="bigint"), long(value), long(1), long(value))
    assert [rows[place]["a"] for place in range(3)] == [value, 1, value]
    assert reasons == {}


def test_a_long_of_more_than_64_bits_is_bad() -> None:
    beyond = b"\xff" * 9 + b"\x02"
    endless = b"\x80" * 11 + b"\x00"
    padded = b"\x82\x80\x00"
    rows, reasons = decode(decoder(record(a="long"), a="bigint"), beyond, endless, padded)
    assert reasons == dict.fromkeys((0, 1), "`a` is longer than 64 bits")
    assert rows[2] == {"a": 1}


def test_values_that_do_not_fit_their_columns() -> None:
    writer = record(small="long", short="int", exact="long", money="long")
    reader = decoder(writer, small="int", short="tinyint", exact="decimal(4, 2)", money="double")
    good = {"small": 2**31 - 1, "short": -128, "exact": -99, "money": 2**62}
    rows, reasons = decode(
        reader,
        encoded(writer, good),
        encoded(writer, good | {"small": 2**31}),
        encoded(writer, good | {"short": 128}),
        encoded(writer, good | {"exact": 100}),
    )
    assert rows == {0: good | {"exact": Decimal("-99.00"), "money": 2.0**62}}
    assert reasons == {
        1: "`small` does not fit in int32",
        2: "`short` does not fit in int8",
        3: "`exact` does not fit in decimal128(4, 2)",
    }


def test_decimals_that_lose_a_digit_or_have_too_many() -> None:
    writer = record(d={"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3})
    reader = decoder(writer, d="decimal(5, 2)")
    messages = [long(len(raw)) + raw for raw in (
        (1230).to_bytes(2), (1234).to_bytes(2), (999_990).to_bytes(3), (1_000_000).to_bytes(3),
        b"", b"\xff" * 40 + (-10).to_bytes(8, signed=True), b"\x01" + bytes(16), b"\x7f" * 16,
        bytes(65), (-(10**38)).to_bytes(16, signed=True),
    )]  # fmt: skip
    rows, reasons = decode(reader, *messages)
    assert {place: row["d"] for place, row in rows.items()} == {
        0: Decimal("1.23"),
        2: Decimal("999.99"),
        4: Decimal("0.00"),
        5: Decimal("-0.01"),
    }
    assert set(reasons) == {1, 3, 6, 7, 8, 9}
    assert set(reasons.values()) == {"`d` does not fit in decimal128(5, 2)"}


def test_the_largest_decimals() -> None:
    writer = record(d={"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0})
    numbers = [10**38 - 1, 1 - 10**38, 10**38, -(10**38)]
    messages = [long(16) + each.to_bytes(16, signed=True) for each in numbers]
    rows, reasons = decode(decoder(writer, d="decimal(38, 0)"), *messages)
    assert [int(rows[place]["d"]) for place in (0, 1)] == numbers[:2]
    assert set(reasons) == {2, 3}


def test_logical_types_as_what_they_are_of_and_times_that_overflow() -> None:
    writer = record(
        t={"type": "int", "logicalType": "time-millis"},
        n={"type": "long", "logicalType": "timestamp-nanos"},
        m={"type": "long", "logicalType": "timestamp-millis"},
        u={"type": "int", "logicalType": "unheard-of"},
    )
    reader = decoder(writer, t="int", n="timestamp", m="timestamp", u="double")
    head = long(5) + long(-1)
    rows, reasons = decode(reader, head + long(0) + long(7), head + long(2**62) + long(7))
    assert rows[0]["t"] == 5
    assert rows[0]["n"].isoformat() == "1969-12-31T23:59:59.999999+00:00"
    assert rows[0]["u"] == 7.0
    assert reasons == {1: "`m` does not fit in timestamp[us, tz=UTC]"}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("double", "float"),
        ("double", "bigint"),
        ("string", "int"),
        ("long", "timestamp"),
        ("long", "string"),
        ("boolean", "int"),
        ({"type": "int", "logicalType": "date"}, "timestamp"),
        ({"type": "fixed", "name": "F", "size": 3}, "string"),
        ({"type": "array", "items": "string"}, "array<int>"),
        ({"type": "map", "values": "string"}, "map<int, string>"),
        (["null", "string"], "int"),
        (["int", "string"], "boolean"),
    ],
)
def test_types_that_cannot_become_the_declared_one(kind: Any, column: str) -> None:
    rows, reasons = decode(decoder(record(a="int", b=kind), b=column), b"\0", b"")
    assert rows == {}
    assert set(reasons) == {0, 1}
    assert len(set(reasons.values())) == 1
    assert reasons[0].startswith("`b")
    assert "cannot become" in reasons[0]


def test_a_schema_that_is_no_record_or_no_schema() -> None:
    _, reasons = decode(decoder("long", a="bigint"), b"\x02")
    assert reasons == {0: "the record: long cannot become struct<a: int64>"}
    _, reasons = decode(decoder(["null", record(a="int")], a="int"), b"\x02\x02")
    assert "not a record" in reasons[0]
    _, reasons = decode(decoder(record(a="nothing known"), a="int"), b"\x02\x02")
    assert reasons[0].startswith("the Avro schema cannot be read: ")


def test_a_branch_that_the_column_cannot_hold_spoils_only_its_records() -> None:
    writer = record(a=["null", "long", "string", "int"], b="int")
    reader = decoder(writer, a="bigint", b="int")
    messages = [
        b"\x02" + long(5) + long(1),
        b"\x04" + long(2) + b"hi" + long(2),
        b"\x00" + long(3),
        b"\x06" + long(-6) + long(4),
        b"\x08" + long(5),
        b"\x01" + long(5),
    ]
    rows, reasons = decode(reader, *messages)
    assert rows == {0: {"a": 5, "b": 1}, 2: {"a": None, "b": 3}, 3: {"a": -6, "b": 4}}
    assert reasons[1] == "`a`: string cannot become int64"
    assert reasons[4] == reasons[5] == "`a` has no such branch"


def test_blocks_that_say_their_size() -> None:
    writer = record(a={"type": "array", "items": "string"}, b={"type": "array", "items": "double"})
    one, two = long(3) + b"abc", long(1) + b"d"
    good = long(-2) + long(6) + one + two + long(1) + two + long(0)
    doubles = long(-1) + long(8) + bytes(8) + long(0)
    lies = long(-2) + long(5) + one + two + long(0)
    beyond = long(-2) + long(2**62) + one + two + long(0)
    endless = long(-(2**63)) + long(6) + one + two + long(0)
    every = [good + doubles, lies + doubles, beyond + doubles, endless + doubles]
    rows, reasons = decode(decoder(writer, a="array<string>", b="array<double>"), *every)
    assert rows == {0: {"a": ["abc", "d", "d"], "b": [0.0]}}
    assert reasons == {
        1: "a block of `a` is not as long as it says",
        2: "a block of `a` is not as long as it says",
        3: "`a` claims more items than its bytes can hold",
    }
    # Whether the array is read or stepped over, the same messages are good.
    rows, reasons = decode(decoder(writer, b="array<double>"), *every)
    assert rows == {0: {"b": [0.0]}}


def test_a_key_that_stands_twice() -> None:
    writer = record(m={"type": "map", "values": "int"})
    pair = long(1) + b"k" + long(7)
    other = long(1) + b"j" + long(8)
    reader = decoder(writer, m="map<string, int>")
    rows, reasons = decode(
        reader,
        long(2) + pair + other + long(0),
        long(2) + pair + pair + long(0),
        long(1) + pair + long(0),
    )
    assert rows == {0: {"m": [("k", 7), ("j", 8)]}, 2: {"m": [("k", 7)]}}
    assert reasons == {1: "a key of `m` stands twice"}


def test_texts_that_are_not_utf8() -> None:
    whole = "é".encode()
    parts = [whole, whole[:1], whole[1:], b"", b"a", b"\xff", whole + whole[:1], b"ok"]
    messages = [long(len(each)) + each for each in parts]
    rows, reasons = decode(decoder(record(s="string"), s="string"), *messages)
    assert {place: row["s"] for place, row in rows.items()} == {0: "é", 3: "", 4: "a", 7: "ok"}
    assert reasons == dict.fromkeys((1, 2, 5, 6), "`s` is not UTF-8")
    rows, reasons = decode(decoder(record(s="string"), s="binary"), *messages)
    assert [rows[place]["s"] for place in range(8)] == parts


RECURSIVE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "v", "type": "int"},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}


def node(depth: int) -> dict[str, Any]:
    inner = node(depth - 1) if depth else None
    return {"v": depth, "next": inner, "children": [node(0), node(0)] if depth == 1 else []}


def test_recursive_types_are_stepped_over_and_read_as_deep_as_declared() -> None:
    messages = [encoded(RECURSIVE, node(depth)) for depth in (0, 1, 3, 25)]
    rows, reasons = decode(decoder(RECURSIVE, v="int"), *messages)
    assert {place: row["v"] for place, row in rows.items()} == {0: 0, 1: 1, 2: 3, 3: 25}
    rows, reasons = decode(decoder(RECURSIVE, next="struct<v int, next struct<v int>>"), *messages)
    assert rows[2]["next"] == {"v": 2, "next": {"v": 1}}
    assert reasons == {}


def test_recursion_without_end_is_bad() -> None:
    deep = b"\x00\x02" * 100_000
    rows, reasons = decode(decoder(RECURSIVE, v="int"), deep, encoded(RECURSIVE, node(2)))
    assert rows == {1: {"v": 2}}
    assert "nested more than" in reasons[0]
    endless = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}
    _, reasons = decode(decoder(record(x=endless, y="int"), y="int"), b"\0", b"")
    assert all("nested more than" in each for each in reasons.values())


HUGE = [2**63 - 1, 2**60, 2**31, -1, -(2**63), -(2**60)]


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("string", "string"),
        ("bytes", "binary"),
        ({"type": "array", "items": "long"}, "array<bigint>"),
        ({"type": "array", "items": "double"}, "array<double>"),
        ({"type": "array", "items": "null"}, "array<int>"),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, "array<array<int>>"),
        ({"type": "map", "values": "null"}, "map<string, int>"),
        ({"type": "array", "items": record()}, "array<struct<x int>>"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal(4, 0)"),
    ],
)
def test_claimed_sizes_cost_nothing(kind: Any, column: str, count: int) -> None:
    tail = long(3) + b"abc" * 3
    messages = [long(count) + tail, long(2) + long(count) + tail, long(-2) + long(count) + tail]
    for declared in ({"a": column, "b": "int"}, {"b": "int"}):
        reader = decoder(record(a=kind, b="int"), **declared)
        reader.decode(records_of(messages))
        tracemalloc.start()
        begun = time.process_time()
        rows, _ = decode(reader, *messages * 10)
        taken = time.process_time() - begun
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert rows == {}
        assert peak < 2_000_000
        assert taken < 2


def test_a_few_nulls_in_an_array() -> None:
    writer = record(a={"type": "array", "items": "null"})
    most = long(10) + long(6) + long(0)
    reader = decoder(writer, a="array<int>")
    rows, reasons = decode(reader, long(3) + long(0), most, long(10) + long(7) + long(0))
    assert [len(rows[place]["a"]) for place in (0, 1)] == [3, 16]
    assert reasons == {2: "`a` claims more items than its bytes can hold"}


def test_a_very_long_array_does_not_take_a_round_for_each_item() -> None:
    writer = record(a={"type": "array", "items": "string"}, b="int")
    message = encoded(writer, {"a": ["x"] * 50_000, "b": 1})
    if avro_walk.FEW_LANES:
        begun = time.process_time()
        rows, _ = decode(decoder(writer, b="int"), *[message] * 3)
        assert time.process_time() - begun < 5
        assert [row["b"] for row in rows.values()] == [1, 1, 1]


def test_leftovers_and_nulls_where_none_may_be() -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    reader = AvroDecoder(schema, writer_schema=json.dumps(record(a=["null", "int"])))
    rows, reasons = decode(reader, b"\x02\x02", b"\x02\x02\x00", b"\x00")
    assert rows == {0: {"a": 1}}
    assert reasons == {
        1: "bytes are left over after the last field",
        2: "`a` must not be null",
    }


def test_a_bad_record_is_handed_over_as_it_came() -> None:
    found = decoder(record(a="int"), a="int").decode(records_of([b"\x02", b"\x80"]))
    (bad,) = found.bad
    assert (bad.position, bad.raw, bad.reason) == (101, b"\x80", "the bytes end within `a`")


def test_it_pickles() -> None:
    reader = decoder(record(a="int"), a="int")
    reader.decode(records_of([b"\x02"]))
    assert decode(pickle.loads(pickle.dumps(reader)), b"\x02")[0] == {0: {"a": 1}}

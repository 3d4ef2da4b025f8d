"""Protobuf messages: what the columns allow, and what is hostile."""

from __future__ import annotations

import pickle
import time
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.encoding.protobuf_schema import MAIN, compile_proto, load, message_at
from laminar_dagster.sources.formats import protobuf_scan
from laminar_dagster.sources.formats.protobuf import ProtobufDecoder
from tests.unit.sources.formats import protobuf_cases as cases
from tests.unit.sources.formats.messages import by_place, records_of

TEXT = cases.PROTO3


@pytest.fixture(params=[0, 16], ids=["in rounds", "one by one"], autouse=True)
def few_lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_scan, "FEW_LANES", request.param)


def decoder(message: str = "shop.Event", /, **columns: str) -> ProtobufDecoder:
    schema = cases.declared(columns)
    return ProtobufDecoder(schema, descriptor_set=cases.descriptor_set(TEXT), message=message)


def event(**values: Any) -> bytes:
    made: bytes = cases.message_class(TEXT, "shop.Event")(**values).SerializeToString()
    return made


def decode(
    reader: ProtobufDecoder, *messages: bytes
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    return by_place(reader.decode(records_of(messages)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def test_what_is_absent_is_its_default_or_null() -> None:
    reader = decoder(
        i32="int",
        s="string",
        colour="string",
        maybe="int",
        inner="struct<name string>",
        two="string",
        ints="array<int>",
        counts="map<string, bigint>",
        lacking="date",
    )
    rows, reasons = decode(reader, b"", event(maybe=0, two="", inner={}))
    nothing = {"i32": 0, "s": "", "colour": "NONE", "ints": [], "counts": [], "lacking": None}
    assert rows[0] == nothing | {"maybe": None, "inner": None, "two": None}
    assert rows[1] == nothing | {"maybe": 0, "inner": {"name": ""}, "two": ""}
    assert reasons == {}


def test_enums_as_numbers() -> None:
    rows, _ = decode(
        decoder(colour="int", colours="array<bigint>"), event(colour=5, colours=[-1, 9])
    )
    assert rows == {0: {"colour": 5, "colours": [-1, 9]}}


def test_values_that_do_not_fit_their_columns() -> None:
    reader = decoder(u64="bigint", i64="smallint", s64="decimal(3, 1)")
    good = {"u64": 2**63 - 1, "i64": -(2**15), "s64": -99}
    rows, reasons = decode(
        reader,
        event(**good),
        event(**good | {"u64": 2**63}),
        event(**good | {"i64": 2**15}),
        event(**good | {"s64": 100}),
    )
    assert set(rows) == {0}
    assert reasons == {
        1: "`u64` does not fit in int64",
        2: "`i64` does not fit in int16",
        3: "`s64` does not fit in decimal128(3, 1)",
    }


def test_the_last_of_a_field_and_of_a_oneof_counts() -> None:
    reader = decoder(i32="int", one="int", two="string")
    rows, reasons = decode(
        reader,
        event(i32=1) + event(i32=2, one=7) + event(two="x"),
        event(two="x") + event(one=0),
        event(three={}, i32=4) + event(one=3) + event(four=1.0),
    )
    assert rows[0] == {"i32": 2, "one": None, "two": "x"}
    assert rows[1] == {"i32": 0, "one": 0, "two": None}
    assert rows[2] == {"i32": 4, "one": None, "two": None}
    assert reasons == {}


def test_messages_that_would_have_to_be_merged_are_bad() -> None:
    reader = decoder(inner="struct<name string>", at="timestamp", counts="map<string, bigint>")
    twice: list[dict[str, Any]] = [
        {"inner": {"name": "x"}},
        {"at": {"seconds": 1}},
        {"counts": {"k": 1}},
    ]
    rows, reasons = decode(reader, *[event(**each) * 2 for each in twice])
    assert rows == {}
    assert reasons == {
        0: "`inner` stands twice, and is a message",
        1: "`at` stands twice, and is a message",
        2: "a key of `counts` stands twice",
    }


def test_packed_and_loose_values_mix_in_the_order_in_which_they_stand() -> None:
    number = 24 << 3
    packed = varint(number | 2) + b"\x03\x01\x96\x01"
    loose = varint(number) + b"\x07"
    rows, reasons = decode(
        decoder(ints="array<int>"),
        packed + loose + packed,
        loose + loose,
        varint(number | 2) + b"\x02\x01\x96",
        varint(number | 2) + b"\x00",
    )
    assert rows == {0: {"ints": [1, 150, 7, 1, 150]}, 1: {"ints": [7, 7]}, 3: {"ints": []}}
    assert reasons == {2: "the packed values of `ints` are cut off"}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x80", "the bytes end within a tag"),
        (b"\x00\x01", "a tag that Protobuf does not have"),
        (b"\x0e\x01", "a tag that Protobuf does not have"),
        (b"\xff" * 9 + b"\x01\x01", "a tag that Protobuf does not have"),
        (b"\x0c", "the end of a group that did not begin"),
        (b"\x18\x80", "the bytes end within a field"),
        (b"\x72\x05abc", "the bytes end within a field"),
        (b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "the bytes end within a field"),
        (b"\x09\x00\x00", "the bytes end within a field"),
        (b"\x4d\x00\x00", "the bytes end within a field"),
        (b"\x18" + b"\xff" * 10 + b"\x01", "a field is longer than 64 bits"),
        (b"\x72\x01\xff", "`s` is not UTF-8"),
        (b"\xeb\x01" * 50, "groups are nested more than 32 deep"),
    ],
)
def test_what_is_no_message(message: bytes, reason: str) -> None:
    good = event(i32=1, s="x", d=1.0, x32=4)
    reader = decoder(i32="int", s="string", d="double", x32="bigint")
    rows, reasons = decode(reader, good, message, good)
    assert set(rows) == {0, 2}
    assert reasons == {1: reason}


def test_groups_are_stepped_over() -> None:
    group = b"\xeb\x01" + event(i32=9) + b"\xf3\x01\xf4\x01" + b"\xec\x01"
    rows, _ = decode(decoder(i32="int"), group + event(i32=1), event(i32=2))
    assert [rows[place]["i32"] for place in (0, 1)] == [1, 2]


@pytest.mark.parametrize("count", [2**63 - 1, 2**64 - 1, 2**60, 2**31])
@pytest.mark.parametrize("number", [14, 19, 24, 25, 28, 31, 999])
def test_claimed_lengths_cost_nothing(number: int, count: int) -> None:
    reader = decoder(s="string", inner="struct<name string>", ints="array<int>",
                     doubles="array<double>", inners="array<struct<name string>>",
                     counts="map<string, bigint>")  # fmt: skip
    message = varint(number << 3 | 2) + varint(count) + b"abc"
    reader.decode(records_of([message]))
    tracemalloc.start()
    begun = time.process_time()
    rows, reasons = decode(reader, *[message] * 40)
    assert time.process_time() - begun < 2
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    assert rows == {}
    assert len(reasons) == 40


def test_a_very_long_list_does_not_take_a_round_for_each_item() -> None:
    if protobuf_scan.FEW_LANES:
        begun = time.process_time()
        rows, _ = decode(decoder(loose="array<bigint>"), *[event(loose=[1] * 100_000)] * 2)
        assert [len(row["loose"]) for row in rows.values()] == [100_000] * 2
        assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("d", "float"),
        ("i32", "string"),
        ("b", "int"),
        ("s", "int"),
        ("ints", "int"),
        ("inner", "string"),
        ("inners", "struct<name string>"),
        ("counts", "array<string>"),
        ("counts", "map<int, bigint>"),
        ("at", "bigint"),
        ("took", "timestamp"),
        ("text", "int"),
        ("colour", "double"),
    ],
)
def test_types_that_cannot_become_the_declared_one(name: str, column: str) -> None:
    _, reasons = decode(decoder(**{name: column}), b"", b"")
    assert len(set(reasons.values())) == 1
    assert reasons[0].startswith(f"`{name}")
    assert "cannot become" in reasons[0]


def test_a_message_that_is_not_in_the_schema_and_a_set_that_is_none() -> None:
    _, reasons = decode(decoder("shop.Evnt", i32="int"), b"")
    assert reasons[0].startswith("the Protobuf schema has no message `shop.Evnt`; it has: ")
    broken = ProtobufDecoder(pa.schema([("a", pa.int32())]), descriptor_set=b"\xff", message="A")
    _, reasons = decode(broken, b"")
    assert reasons[0].startswith("the Protobuf descriptor set cannot be read: ")


def test_texts_that_do_not_compile_and_imports_from_elsewhere() -> None:
    with pytest.raises(ValueError, match=r"does not compile: __schema__\.proto:1:20: "):
        compile_proto("syntax = 'proto3'; messag A {}", {})
    with pytest.raises(ValueError, match="no relative path"):
        compile_proto("syntax = 'proto3';", {"../../etc/x.proto": ""})


def test_it_pickles() -> None:
    reader = decoder(i32="int")
    reader.decode(records_of([b""]))
    assert decode(pickle.loads(pickle.dumps(reader)), event(i32=3))[0] == {0: {"i32": 3}}


WITH_A_MAP = """syntax = "proto3";
message Outer {
  map<string, string> tags = 1;
  message Event { int64 id = 1; string name = 2; }
}
message Plain { map<string, string> tags = 1; }
"""


@pytest.mark.parametrize(
    ("path", "name"),
    # Java's place of the event, that of Python and Go, and the messages of the file themselves.
    [([0, 0], "Outer.Event"), ([0, 1], "Outer.Event"), ([0], "Outer"), ([1], "Plain")],
)
def test_an_index_never_leads_to_the_entries_of_a_map(path: list[int], name: str) -> None:
    file = load(compile_proto(WITH_A_MAP, {}))[MAIN]
    assert message_at(file, path).full_name == name


@pytest.mark.parametrize("path", [[1, 0], [0, 2], [2], [0, 0, 0]])
def test_an_index_that_leads_nowhere_is_refused(path: list[int]) -> None:
    file = load(compile_proto(WITH_A_MAP, {}))[MAIN]
    with pytest.raises(ValueError, match="no message at"):
        message_at(file, path)

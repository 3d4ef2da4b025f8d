"""Messages with fields of every kind, and what the columns make of them, by the real runtime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from hypothesis import strategies as st

from laminar_dagster.encoding.protobuf_schema import compile_proto, message_named
from laminar_dagster.sources.formats.arrow_types import arrow_type

PROTO3 = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

enum Colour { NONE = 0; RED = 1; BLUE = 5; NEGATIVE = -1; }
message Inner {
  int32 number = 1; string name = 2; repeated sint64 deltas = 3; optional bool on = 4;
}
message Event {
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6;
  sint32 s32 = 7; sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 y32 = 11;
  sfixed64 y64 = 12; bool b = 13; string s = 14; bytes raw = 15; Colour colour = 16;
  optional int32 maybe = 17; optional string maybe_s = 18; Inner inner = 19;
  oneof choice { int32 one = 20; string two = 21; Inner three = 22; double four = 23; }
  repeated int32 ints = 24; repeated double doubles = 25; repeated fixed32 fixeds = 26;
  repeated string strings = 27; repeated Inner inners = 28; repeated Colour colours = 29;
  repeated int64 loose = 30 [packed = false];
  map<string, int64> counts = 31; map<int32, Inner> by_id = 32;
  google.protobuf.Timestamp at = 33; google.protobuf.Duration took = 34;
  google.protobuf.StringValue text = 35; google.protobuf.Int64Value number = 36;
  google.protobuf.BoolValue flag = 37; bool last = 3000;
}
"""
COLUMNS = {
    "d": "double", "f": "double", "i32": "int", "i64": "bigint", "u32": "bigint",
    "u64": "decimal(20, 0)", "s32": "int", "s64": "bigint", "x32": "bigint",
    "x64": "decimal(20, 0)", "y32": "int", "y64": "bigint", "b": "boolean", "s": "string",
    "raw": "binary", "colour": "string", "maybe": "int", "maybe_s": "string",
    "inner": "struct<name string, number int, deltas array<bigint>, on boolean>",
    "one": "int", "two": "string", "three": "struct<number int>", "four": "double",
    "ints": "array<int>", "doubles": "array<double>", "fixeds": "array<bigint>",
    "strings": "array<string>", "inners": "array<struct<name string, on boolean>>",
    "colours": "array<string>", "loose": "array<bigint>", "counts": "map<string, bigint>",
    "by_id": "map<int, struct<number int>>", "at": "timestamp", "took": "bigint",
    "text": "string", "number": "bigint", "flag": "boolean", "last": "boolean",
}  # fmt: skip

PROTO2 = """
syntax = "proto2";
enum Size { SMALL = 1; LARGE = 2; }
enum Grade { NONE = 0; A = 1; }
message Event {
  required int64 id = 1; optional string name = 2 [default = "x"]; optional Size size = 3;
  repeated Size sizes = 4; repeated int32 packed = 5 [packed = true]; repeated int32 loose = 6;
  optional group Old = 7 { optional int32 a = 8; }
  oneof choice { string left = 9; bytes right = 10; }
  map<int32, Grade> by = 11;
}
"""
COLUMNS2 = {
    "id": "bigint", "name": "string", "size": "string", "sizes": "array<string>",
    "packed": "array<int>", "loose": "array<int>", "left": "string", "right": "binary",
    "by": "map<int, string>",
}  # fmt: skip

WRAPPERS = ("StringValue", "Int64Value", "BoolValue")
INT32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=8)
INNER = st.fixed_dictionaries(
    {},
    optional={
        "number": INT32,
        "name": TEXT,
        "deltas": st.lists(INT64, max_size=3),
        "on": st.booleans(),
    },
)
COLOURS = st.sampled_from([0, 1, 5, -1, 77, -2])
SPAN = st.integers(-(10**10), 10**10)


def _seconds(low: int) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({"seconds": SPAN, "nanos": st.integers(low, 10**9 - 1)})


def _under(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return values.map(lambda value: {name: value})


_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "one": INT32,
    "two": TEXT,
    "three": INNER,
    "four": st.floats(),
}
VALUES3 = st.builds(
    lambda plain, choice: plain | choice,
    st.fixed_dictionaries(
        {},
        optional={
            "d": st.floats(), "f": st.floats(width=32), "i32": INT32, "i64": INT64, "u32": UINT32,
            "u64": UINT64, "s32": INT32, "s64": INT64, "x32": UINT32, "x64": UINT64, "y32": INT32,
            "y64": INT64, "b": st.booleans(), "s": TEXT, "raw": st.binary(max_size=8),
            "colour": COLOURS, "maybe": INT32, "maybe_s": TEXT, "inner": INNER,
            "ints": st.lists(INT32, max_size=4), "doubles": st.lists(st.floats(), max_size=3),
            "fixeds": st.lists(UINT32, max_size=3), "strings": st.lists(TEXT, max_size=3),
            "inners": st.lists(INNER, max_size=3), "colours": st.lists(COLOURS, max_size=3),
            "loose": st.lists(INT64, max_size=3),
            "counts": st.dictionaries(TEXT, INT64, max_size=3),
            "by_id": st.dictionaries(INT32, INNER, max_size=2),
            "at": _seconds(0), "took": _seconds(1 - 10**9),
            "text": TEXT.map(lambda x: {"value": x}), "number": INT64.map(lambda x: {"value": x}),
            "flag": st.booleans().map(lambda x: {"value": x}), "last": st.booleans(),
        },
    ),
    st.just({}) | st.one_of([_under(name, each) for name, each in _CHOICES.items()]),
)  # fmt: skip
VALUES2 = st.fixed_dictionaries(
    {"id": INT64},
    optional={
        "name": TEXT, "size": st.sampled_from([1, 2]),
        "sizes": st.lists(st.sampled_from([1, 2]), max_size=3),
        "packed": st.lists(INT32, max_size=3), "loose": st.lists(INT32, max_size=3),
        "old": st.fixed_dictionaries({"a": INT32}),
        "right": st.binary(max_size=5), "by": st.dictionaries(INT32, st.integers(0, 1)),
    },
)  # fmt: skip


@cache
def descriptor_set(text: str) -> bytes:
    return compile_proto(text, {})


@cache
def message_class(text: str, name: str) -> Any:
    return message_factory.GetMessageClass(message_named(descriptor_set(text), name))


def declared(columns: dict[str, str]) -> pa.Schema:
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])


def row_of(message: Any, kinds: list[pa.Field]) -> dict[str, Any]:
    """A message as the columns shall hold it."""
    return {each.name: _column(message, each) for each in kinds}


def _column(message: Any, kind: pa.Field) -> Any:
    field = message.DESCRIPTOR.fields_by_name[kind.name]
    value = getattr(message, kind.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        # A map keeps no order of its own.
        return sorted((key, _value(inner, value[key], kind.type.item_type)) for key in value)
    if field.is_repeated:
        return [_value(field, each, kind.type.value_type) for each in value]
    if field.has_presence and not message.HasField(kind.name):
        return None
    return _value(field, value, kind.type)


def _value(field: Any, value: Any, kind: pa.DataType) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if field.message_type is not None:
        name = field.message_type.name
        if name == "Timestamp":
            assert 0 <= value.nanos < 10**9
            micros = value.seconds * 10**6 + value.nanos // 1000
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        if name == "Duration":
            assert abs(value.nanos) < 10**9
            return value.seconds * 10**6 + int(value.nanos / 1000)
        if name in WRAPPERS:
            return value.value
        return row_of(value, list(kind))
    return Decimal(value) if pa.types.is_decimal(kind) else value

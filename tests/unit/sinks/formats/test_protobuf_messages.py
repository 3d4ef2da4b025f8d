"""Protobuf messages, read back by Google's runtime and by the package's own source."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.encoding.protobuf_schema import compile_proto, message_named
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.protobuf import derived_protobuf_schema, protobuf_encoder
from laminar_dagster.sources.formats.protobuf import ProtobufDecoder
from tests.unit.sinks.formats import batches as cases
from tests.unit.sources.formats.messages import by_place, records_of

KEYS = [cases.STRING, *cases.NUMBERS[:8], cases.BINARY, cases.DATE]
LEAVES = [*cases.LEAVES, cases.whole(pa.uint64())]
ROWS = cases.batches(cases.kinds(LEAVES, KEYS, nulls=False))
GOOGLE = Path(grpc_tools.__file__).parent / "_proto"
EPOCH = date(1970, 1, 1)


def compiled(text: str) -> bytes:
    """As the package does it, but in this process, which takes a fiftieth of the time."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "row.proto").write_text(text)
        paths = ["protoc", f"-I{folder}", f"-I{GOOGLE}", "--include_imports"]
        assert protoc.main([*paths, f"--descriptor_set_out={folder}/set", "row.proto"]) == 0
        return (Path(folder) / "set").read_bytes()


def message_class(descriptor_set: bytes, name: str) -> Any:
    return message_factory.GetMessageClass(message_named(descriptor_set, name))


def encoded(batch: pa.RecordBatch, proto: str | None = None) -> list[bytes]:
    found = protobuf_encoder(batch.schema, proto).encode(batch)
    found.validate(full=True)
    assert found.null_count == 0
    listed: list[bytes] = found.to_pylist()
    return listed


def row_of(message: Any, kinds: Iterator[pa.Field] | list[pa.Field]) -> dict[str, Any]:
    return {kind.name: field_of(message, kind) for kind in kinds}


def field_of(message: Any, kind: pa.Field) -> Any:
    value = getattr(message, kind.name)
    if not message.DESCRIPTOR.fields_by_name[kind.name].has_presence:
        return value_of(value, kind.type)
    return value_of(value, kind.type) if message.HasField(kind.name) else None


def value_of(found: Any, kind: pa.DataType) -> Any:
    """What a reader that knows the column makes of a value of Protobuf."""
    types = pa.types
    if types.is_map(kind):
        found = found if hasattr(found, "__len__") else found.items
        if hasattr(found, "keys"):
            pairs = [(key, found[key]) for key in found]
        else:
            pair = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
            return [tuple(row_of(each, pair).values()) for each in found]
        return [(value_of(k, kind.key_type), value_of(v, kind.item_type)) for k, v in pairs]
    if types.is_list(kind):
        found = found if hasattr(found, "__len__") else found.items
        return [value_of(each, kind.value_type) for each in found]
    if types.is_struct(kind):
        return row_of(found, list(kind))
    if types.is_timestamp(kind):
        return found.ToDatetime(UTC if kind.tz else None)
    if types.is_decimal(kind):
        return Decimal(found)
    if types.is_date(kind):
        return EPOCH + timedelta(days=found)
    if types.is_duration(kind):
        return timedelta(microseconds=found)
    if types.is_time(kind):
        return (datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=found)).time()
    return found


def expected(value: Any, kind: pa.DataType) -> Any:
    """What is left of a value: of a list or a map, not that it was null; of a map, no order."""
    if pa.types.is_map(kind):
        pairs = [(key, expected(each, kind.item_type)) for key, each in value or []]
        return sorted(pairs, key=repr)
    if pa.types.is_list(kind):
        return [expected(each, kind.value_type) for each in value or []]
    if pa.types.is_struct(kind) and value is not None:
        return {part.name: expected(value[part.name], part.type) for part in kind}
    return value


def has_map(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(pa.types.is_map(kind)) or any(map(has_map, inner))


@settings(max_examples=100)
@given(ROWS)
def test_the_runtime_reads_the_same_values_and_writes_the_same_bytes(batch: pa.RecordBatch) -> None:
    kind = pa.struct(list(batch.schema))
    message = message_class(compiled(derived_protobuf_schema(batch.schema, "a.Row")), "a.Row")
    messages = encoded(batch)
    found = [message.FromString(each) for each in messages]
    rows = [expected(row_of(each, list(batch.schema)), kind) for each in found]
    assert cases.spelt(rows) == cases.spelt([expected(row, kind) for row in batch.to_pylist()])
    if not has_map(kind):
        assert [each.SerializeToString() for each in found] == messages


@settings(max_examples=40)
@given(cases.cuts(ROWS))
def test_a_message_does_not_depend_on_its_neighbours(cut: tuple[pa.RecordBatch, int]) -> None:
    cases.check_that_neighbours_do_not_matter(encoded, *cut)


READABLE = st.sampled_from(
    [*cases.NUMBERS[:5], *cases.NUMBERS[8:], cases.STRING, cases.BINARY, *cases.TIMES[:2]]
)


@settings(max_examples=60)
@given(
    cases.batches(
        READABLE
        | cases.structs(READABLE)
        | cases.lists(READABLE | cases.structs(READABLE), nulls=False)
        | cases.maps([cases.STRING, cases.NUMBERS[4]], READABLE, nulls=False)
    )
)
def test_a_source_reads_what_the_sink_wrote(batch: pa.RecordBatch) -> None:
    described = compiled(derived_protobuf_schema(batch.schema, "Row"))
    decoder = ProtobufDecoder(batch.schema, descriptor_set=described, message="Row")
    rows, reasons = by_place(decoder.decode(records_of(encoded(batch))))
    assert not reasons
    kind = pa.struct(list(batch.schema))
    wanted = [expected(row, kind) for row in batch.to_pylist()]
    assert cases.spelt([expected(row, kind) for row in rows.values()]) == cases.spelt(wanted)


@pytest.mark.parametrize("array", cases.ODD_LAYOUTS, ids=lambda array: str(array.type)[:30])
def test_layouts_that_spark_does_not_use(array: pa.Array) -> None:
    batch = pa.record_batch({"x": array})
    message = message_class(compiled(derived_protobuf_schema(batch.schema, "Row")), "Row")
    found = [field_of(message.FromString(each), batch.schema.field(0)) for each in encoded(batch)]
    # What is empty may have been null.
    read = pa.array([value or None for value in found], array.type).to_pylist()
    assert read == [value or None for value in array.to_pylist()]


def test_a_schema_as_it_is_derived() -> None:
    inner = pa.struct([pa.field("on", pa.bool_(), nullable=False), pa.field("day", pa.date32())])
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("wall", pa.timestamp("us")),
            pa.field("took", pa.duration("us")),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("who_is", inner),
            pa.field("grid", pa.list_(pa.list_(pa.int32()))),
            pa.field("by_name", pa.map_(pa.string(), inner)),
            pa.field("by_day", pa.map_(pa.date32(), pa.time64("us"))),
        ]
    )
    assert derived_protobuf_schema(columns, "shop.Order") == (
        """\
syntax = "proto3";

package shop;

import "google/protobuf/timestamp.proto";

message Order {
  message WhoIs {
    bool on = 1;
    optional int32 day = 2;  // days since 1970-01-01
  }
  message Grid {
    repeated int32 items = 1;
  }
  message ByName {
    bool on = 1;
    optional int32 day = 2;  // days since 1970-01-01
  }
  message ByDay {
    int32 key = 1;  // days since 1970-01-01
    optional int64 value = 2;  // microseconds since midnight
  }
  int64 id = 1;
  optional string price = 2;  // a decimal number
  google.protobuf.Timestamp at = 3;
  google.protobuf.Timestamp wall = 4;  // a time without a zone, as if in UTC
  optional int64 took = 5;  // microseconds
  repeated string tags = 6;
  WhoIs who_is = 7;
  repeated Grid grid = 8;
  map<string, ByName> by_name = 9;
  repeated ByDay by_day = 10;
}
"""
    )


def test_a_package_that_is_called_google_is_not_googles() -> None:
    columns = pa.schema([("at", pa.timestamp("us", "UTC"))])
    described = compiled(derived_protobuf_schema(columns, "acme.google.Row"))
    at = message_named(described, "acme.google.Row").fields_by_name["at"].message_type
    assert at is not None
    assert at.full_name == "google.protobuf.Timestamp"


def test_a_derived_schema_gives_the_same_bytes_as_none() -> None:
    batch = pa.record_batch({"a": [1, None], "at": pa.array([0, None], pa.timestamp("us", "UTC"))})
    text = derived_protobuf_schema(batch.schema, "shop.Order")
    assert encoded(batch, text) == encoded(batch) == [b"\x08\x01\x12\x00", b""]
    assert protobuf_encoder(batch.schema, text).message_index == b"\0"


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([("a", pa.struct([("A", pa.int8())])), ("A", pa.int8())]),
        pa.schema([("a", pa.map_(pa.string(), pa.int8())), ("AEntry", pa.int8())]),
        pa.schema([("a", pa.struct([("x", pa.int8())])), ("_a", pa.struct([("x", pa.int8())]))]),
        pa.schema([("x", pa.int8()), ("_x", pa.int8())]),
        pa.schema([("x", pa.map_(pa.int8(), pa.int8())), ("_x", pa.map_(pa.int8(), pa.int8()))]),
        pa.schema([("message", pa.int8()), ("optional", pa.struct([("repeated", pa.int8())]))]),
        pa.schema([("google", pa.timestamp("us", "UTC"))]),
        pa.schema([("a_b", pa.int8()), ("ab", pa.int8())]),
        pa.schema([("m", pa.map_(pa.string(), pa.map_(pa.string(), pa.list_(pa.int8()))))]),
        pa.schema([("s", pa.struct([]))]),
    ],
    ids=range(10),
)
def test_names_that_could_meet_do_not(columns: pa.Schema) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in columns], schema=columns)
    text = derived_protobuf_schema(columns, "Row")
    assert message_class(compiled(text), "Row").FromString(encoded(batch)[0]) is not None


# --- a schema that is given -----------------------------------------------------------------------

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

enum Colour { NONE = 0; RED = 1; BLUE = 5; NEGATIVE = -1; }
message Other { string unused = 1; }
message Event {
  message Inner { int32 number = 2; string name = 1; }
  sint64 s64 = 8; fixed32 x32 = 9; sfixed64 y64 = 12; uint64 u64 = 6; double d = 1;
  Colour colour = 16; optional Colour maybe = 17; Inner inner = 19;
  oneof choice { int32 one = 20; string two = 21; }
  repeated int64 loose = 30 [packed = false]; repeated Colour colours = 29; bytes raw = 15;
  google.protobuf.Timestamp at = 33; google.protobuf.Duration took = 34;
  google.protobuf.StringValue text = 35; google.protobuf.Int64Value number = 36;
  bool last = 3000; map<sint32, Inner> by_id = 40;
}
"""
INNER = pa.struct([("number", pa.int16()), ("name", pa.string())])
EVENTS: dict[str, pa.Array] = {
    "last": pa.array([True, False]),
    "s64": pa.array([-5, 2**40], pa.int64()),
    "x32": pa.array([7, 2**32 - 1], pa.uint32()),
    "y64": pa.array([-1, 0], pa.int32()),
    "u64": pa.array([2**16 - 1, 0], pa.uint16()),
    "d": pa.array([0.5, -0.0], pa.float32()),
    "colour": pa.array(["BLUE", "NONE"]),
    "maybe": pa.array(["NEGATIVE", None]),
    "inner": pa.array([{"number": -1, "name": "x"}, None], INNER),
    "two": pa.array([None, ""], pa.string()),
    "loose": pa.array([[1, -1], None], pa.list_(pa.int64())),
    "colours": pa.array([["RED", "NONE"], []]),
    "raw": pa.array(["é", ""]),
    "at": pa.array([-1, 1_500_000], pa.timestamp("us", "UTC")),
    "took": pa.array([-1_500_000, 1_500_000], pa.duration("us")),
    "text": pa.array(["", None]),
    "number": pa.array([0, None], pa.int64()),
    "by_id": pa.array([[(-3, {"number": 1, "name": ""})], []], pa.map_(pa.int8(), INNER)),
}


@cache
def shop() -> Any:
    return message_class(compiled(SHOP), "shop.Event")


def test_columns_are_found_by_name_and_become_wider() -> None:
    batch = pa.record_batch(EVENTS)
    encoder = protobuf_encoder(batch.schema, SHOP, "shop.Event")
    event = shop()
    first = event(
        last=True,
        s64=-5,
        x32=7,
        y64=-1,
        u64=2**16 - 1,
        d=0.5,
        colour="BLUE",
        maybe="NEGATIVE",
        inner={"number": -1, "name": "x"},
        loose=[1, -1],
        colours=["RED", "NONE"],
        raw="é".encode(),
        at={"seconds": -1, "nanos": 999_999_000},
        text={},
        number={},
        took={"seconds": -1, "nanos": -500_000_000},
        by_id={-3: {"number": 1}},
    )
    second = event(
        s64=2**40,
        x32=2**32 - 1,
        d=-0.0,
        two="",
        at={"seconds": 1, "nanos": 500_000_000},
        took={"seconds": 1, "nanos": 500_000_000},
    )
    found = encoder.encode(batch).to_pylist()
    assert [event.FromString(each) for each in found] == [first, second]
    assert found[1] == second.SerializeToString()
    # The second message of its file.
    assert encoder.message_index == b"\x02\x02"


def test_a_nested_message_and_one_of_another_file() -> None:
    text = 'syntax = "proto3"; import "more/size.proto"; message A { message B { Size s = 1; } }'
    other = 'syntax = "proto3"; enum Size { S = 0; M = 1; }'
    batch = pa.record_batch({"s": ["M", "S"]})
    encoder = protobuf_encoder(batch.schema, text, "A.B", {"more/size.proto": other})
    assert encoder.encode(batch).to_pylist() == [b"\x08\x01", b""]
    assert encoder.message_index == b"\x04\x00\x00"


def test_a_proto2_message() -> None:
    text = (
        'syntax = "proto2"; message R { required int32 n = 1; optional string s = 2;'
        " repeated int32 many = 3; optional int32 more = 4 [default = 5]; }"
    )
    batch = pa.record_batch(
        {
            "n": pa.array([0], pa.int32()),
            "s": [""],
            "many": pa.array([[1, 2]], pa.list_(pa.int32())),
        }
    )
    message = message_class(compiled(text), "R")
    assert encoded(batch, text) == [message(n=0, s="", many=[1, 2]).SerializeToString()]
    with pytest.raises(Unwritable, match="`R` requires the field `n`"):
        protobuf_encoder(pa.schema([("s", pa.string())]), text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("s64", pa.uint64()),
        ("x32", pa.int32()),
        ("x32", pa.uint64()),
        ("y64", pa.float32()),
        ("u64", pa.int8()),
        ("d", pa.int64()),
        ("colour", pa.int32()),
        ("inner", pa.string()),
        ("inner", pa.list_(pa.string())),
        ("one", pa.int64()),
        ("two", pa.binary()),
        ("loose", pa.int64()),
        ("raw", pa.decimal128(9, 2)),
        ("at", pa.int64()),
        ("at", pa.date32()),
        ("took", pa.int64()),
        ("text", pa.int8()),
        ("last", pa.int8()),
        ("by_id", pa.list_(INNER)),
        ("s64", pa.timestamp("us")),
    ],
    ids=str,
)
def test_a_type_that_would_lose_values_is_refused_at_once(
    name: str, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "laminar_dagster.sinks.formats.protobuf.compile_proto", lambda text, imports: _shop_set()
    )
    with pytest.raises(Unwritable, match=rf"column `{name}.*cast it in the view, or change"):
        protobuf_encoder(pa.schema([(name, kind)]), SHOP, "shop.Event")


@cache
def _shop_set() -> bytes:
    return compile_proto(SHOP, {})


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        (
            pa.schema([("x", pa.int8())]),
            "message R { int32 y = 1; }",
            "`R` has no field for the column `x`; it has: y",
        ),
        (
            pa.schema([("x", pa.int8()), ("y", pa.int8())]),
            "message R { oneof one { int32 x = 1; int32 y = 2; } }",
            "are of one oneof, `one`",
        ),
        (pa.schema([("x", pa.int8())]), "message R {", "does not compile"),
        (pa.schema([("x", pa.int8())]), "enum E { A = 0; }", "no message"),
    ],
    ids=range(4),
)
def test_a_schema_that_does_not_fit_the_columns_is_refused(
    schema: pa.Schema, text: str, told: str
) -> None:
    with pytest.raises(Unwritable) as caught:
        protobuf_encoder(schema, f'syntax = "proto3"; {text}')
    assert told in str(caught.value)


# --- values that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (pa.array([[], [1, None]]), "`x.element` has 1 values that hold a null"),
        (
            pa.array([[], [("a", None)]], pa.map_(pa.string(), pa.int8())),
            "`x.value` has 1 values that hold a null",
        ),
        (pa.array([[], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8())), "hold a key twice"),
        (pa.array([0, 2**62], pa.timestamp("us")), "have a year that is not between 1 and 9999"),
        (pa.array([0, 1], pa.duration("ns")), "are no whole microseconds"),
        (pa.array([None, {"a": [1, None]}]), "`x.a.element` has 1 values that hold a null"),
    ],
    ids=range(6),
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(array: pa.Array, told: str) -> None:
    with pytest.raises(Unwritable) as caught:
        encoded(pa.record_batch({"x": array}))
    assert told in str(caught.value)
    assert "the first is in row 1 of 2" in str(caught.value)


def test_a_null_that_a_reader_would_take_for_a_default_is_refused() -> None:
    text = 'syntax = "proto3"; message R { int32 x = 1; }'
    with pytest.raises(Unwritable, match=r"cannot tell that from a default; make it `optional`"):
        encoded(pa.record_batch({"x": pa.array([0, None], pa.int8())}), text)


@pytest.mark.parametrize(
    ("schema", "name", "told"),
    [
        (
            pa.schema([("a b", pa.int8())]),
            "Row",
            "column `a b` has a name that Protobuf cannot spell",
        ),
        (
            pa.schema([("a_b", pa.int8()), ("aB", pa.int8())]),
            "Row",
            "the columns `a_b` and `aB` are one name",
        ),
        (pa.schema([("a", pa.int8())]), "my topic", "no name of a message"),
        (pa.schema([("a", pa.list_(pa.null()))]), "Row", "which Protobuf cannot hold"),
        (pa.schema([("a", pa.month_day_nano_interval())]), "Row", "which Protobuf cannot hold"),
    ],
    ids=range(5),
)
def test_what_protobuf_cannot_spell_is_refused(schema: pa.Schema, name: str, told: str) -> None:
    with pytest.raises(Unwritable) as caught:
        derived_protobuf_schema(schema, name)
    assert told in str(caught.value)

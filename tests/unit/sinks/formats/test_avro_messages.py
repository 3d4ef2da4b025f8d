"""Avro messages, read back by fastavro and by the package's own source."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.avro import avro_encoder, derived_avro_schema
from laminar_dagster.sources.formats.avro import AvroDecoder
from tests.unit.sinks.formats import batches as cases
from tests.unit.sources.formats.messages import by_place, records_of

KEYS = [cases.STRING, cases.NUMBERS[4], cases.BINARY, cases.DATE]
ROWS = cases.batches(cases.kinds([*cases.LEAVES, cases.whole(pa.uint64())], KEYS))


LETTERS = {"type": "enum", "name": "E", "symbols": ["B", "A"]}
COUNTS = pa.map_(pa.string(), pa.int8())


def encoded(batch: pa.RecordBatch, schema: Any = None) -> list[bytes]:
    text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
    found = avro_encoder(batch.schema, text).encode(batch)
    found.validate(full=True)
    assert found.null_count == 0
    listed: list[bytes] = found.to_pylist()
    return listed


def decoded(messages: Sequence[bytes], schema: Any) -> list[Any]:
    parsed = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    rows = []
    for message in messages:
        stream = io.BytesIO(message)
        rows.append(fastavro.schemaless_reader(stream, parsed, None))
        assert not stream.read(), "bytes are left over"
    return rows


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [*fields]}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def value_of(found: Any, kind: pa.DataType) -> Any:
    """What a reader that knows the column makes of a value of Avro."""
    if found is None:
        return None
    if pa.types.is_map(kind):
        pairs = found.items() if isinstance(found, dict) else map(dict.values, found)
        return [
            (value_of(key, kind.key_type), value_of(each, kind.item_type)) for key, each in pairs
        ]
    if pa.types.is_list(kind):
        return [value_of(each, kind.value_type) for each in found]
    if pa.types.is_struct(kind):
        return {part.name: value_of(found[part.name], part.type) for part in kind}
    if pa.types.is_duration(kind):
        return timedelta(microseconds=found)
    return int(found) if kind == pa.uint64() else found


@settings(max_examples=100)
@given(ROWS)
def test_the_library_reads_the_same_values_and_writes_the_same_bytes(batch: pa.RecordBatch) -> None:
    schema = derived_avro_schema(batch.schema, "shop.orders.Row")
    messages = encoded(batch)
    assert encoded(batch, schema) == messages
    rows = decoded(messages, schema)
    kind = pa.struct(list(batch.schema))
    assert cases.spelt([value_of(row, kind) for row in rows]) == cases.spelt(batch.to_pylist())
    if '"decimal"' in schema:
        # The library takes a byte more than it needs for -128.
        return
    parsed = fastavro.parse_schema(json.loads(schema))
    for row, message in zip(rows, messages, strict=True):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        assert out.getvalue() == message


def test_a_decimal_takes_as_few_bytes_as_java_would() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 32767, 32768, -32768, -32769, 10**37, -(10**37)]
    for precision in (5, 38):
        fitting = [number for number in numbers if abs(number) < 10**precision]
        kind = pa.decimal128(precision, 0)
        column = pa.field("x", kind, nullable=False)
        array = pa.array([*map(Decimal, fitting)], kind)
        batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([column]))
        # What BigInteger.toByteArray gives: a sign bit, and no byte that only repeats it.
        sizes = [((n if n >= 0 else ~n).bit_length() + 8) // 8 for n in fitting]
        expected = [
            bytes([2 * size]) + number.to_bytes(size, "big", signed=True)
            for number, size in zip(fitting, sizes, strict=True)
        ]
        assert encoded(batch) == expected


@settings(max_examples=40)
@given(cases.cuts(ROWS))
def test_a_message_does_not_depend_on_its_neighbours(cut: tuple[pa.RecordBatch, int]) -> None:
    cases.check_that_neighbours_do_not_matter(encoded, *cut)


@settings(max_examples=60)
@given(cases.batches(cases.kinds(cases.SPARK_LEAVES, [cases.STRING])))
def test_a_source_reads_what_the_sink_wrote(batch: pa.RecordBatch) -> None:
    writer = derived_avro_schema(batch.schema, "Row")
    found = AvroDecoder(batch.schema, writer_schema=writer).decode(records_of(encoded(batch)))
    rows, reasons = by_place(found)
    assert not reasons
    assert cases.spelt([*rows.values()]) == cases.spelt(batch.to_pylist())


@pytest.mark.parametrize("array", cases.ODD_LAYOUTS, ids=lambda array: str(array.type)[:30])
def test_layouts_that_spark_does_not_use(array: pa.Array) -> None:
    batch = pa.record_batch({"x": array})
    rows = decoded(encoded(batch), derived_avro_schema(batch.schema, "Row"))
    found = [value_of(row["x"], array.type) for row in rows]
    assert pa.array(found, array.type).to_pylist() == array.to_pylist()
    assert found[1] is None


def test_a_schema_as_it_is_derived() -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("wall", pa.timestamp("us"), nullable=False),
            pa.field("took", pa.duration("us"), nullable=False),
            pa.field("tags", pa.list_(pa.string()), nullable=False),
            pa.field("who", pa.struct([pa.field("day", pa.date32(), nullable=False)])),
            pa.field("by_day", pa.map_(pa.date32(), pa.time64("us")), nullable=False),
        ]
    )
    decimal = logical("bytes", "decimal", precision=9, scale=2)
    date = logical("int", "date")
    time = logical("long", "time-micros")
    who = {"type": "record", "name": "Row_who", "fields": [field("day", date)]}
    pair = [field("key", date), field("value", ["null", time], default=None)]
    assert json.loads(derived_avro_schema(columns, "shop.Row")) == {
        "type": "record",
        "name": "shop.Row",
        "fields": [
            field("id", "long"),
            field("price", ["null", decimal], default=None),
            field("at", logical("long", "timestamp-micros")),
            field("wall", logical("long", "local-timestamp-micros")),
            field("took", "long", doc="microseconds"),
            field("tags", {"type": "array", "items": ["null", "string"]}),
            field("who", ["null", who], default=None),
            field(
                "by_day",
                {
                    "type": "array",
                    "items": {"type": "record", "name": "Row_by_day", "fields": pair},
                },
            ),
        ],
    }


def test_names_of_nested_records_do_not_meet() -> None:
    inner = pa.struct([("x", pa.int8())])
    columns = pa.schema([("a", pa.struct([("b", inner)])), ("a_b", inner)])
    batch = pa.RecordBatch.from_pylist([{"a": {"b": {"x": 1}}, "a_b": {"x": 2}}], schema=columns)
    assert decoded(encoded(batch), derived_avro_schema(columns, "Row")) == batch.to_pylist()


# --- a schema that is given -----------------------------------------------------------------------


def test_columns_are_found_by_name_and_become_wider() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array([1, 2], pa.int8()),
            "b": pa.array([0.5, None], pa.float32()),
            "c": pa.array([7, 8], pa.int32()),
            "d": pa.array([Decimal("1.5"), Decimal("-1.5")], pa.decimal128(3, 1)),
            "e": pa.array([-7, 99], pa.int32()),
            "f": ["x", "y"],
            "g": pa.array([3, None], pa.int16()),
        }
    )
    wide = {"logicalType": "decimal", "precision": 40, "scale": 5}
    schema = record(
        field("g", ["double", "null"]),
        field("f", "bytes"),
        field("e", logical("bytes", "decimal", precision=12, scale=2)),
        field("d", {"type": "fixed", "name": "D", "size": 20, **wide}),
        field("c", ["null", "string", "long"]),
        field("b", ["double", "null"]),
        field("a", "long"),
    )
    assert decoded(encoded(batch, schema), schema) == [
        {"g": 3.0, "f": b"x", "e": Decimal(-7), "d": Decimal("1.5"), "c": 7, "b": 0.5, "a": 1},
        {
            "g": None,
            "f": b"y",
            "e": Decimal(99),
            "d": Decimal("-1.5"),
            "c": 8,
            "b": None,
            "a": 2,
        },
    ]


def test_a_field_without_a_column_gets_its_default_or_null() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [field("n", "int", default=3)]}
    schema = record(
        field("before", ["null", "string"]),
        field("kind", {"type": "enum", "name": "K", "symbols": ["A", "B"]}, default="B"),
        field("x", "long"),
        field("inner", inner),
        field("more", {"type": "array", "items": "Inner"}, default=[]),
        field("text", ["string", "null"], default="né"),
    )
    batch = pa.record_batch({"x": [5], "inner": pa.array([{}], pa.struct([]))})
    assert decoded(encoded(batch, schema), schema) == [
        {"before": None, "kind": "B", "x": 5, "inner": {"n": 3}, "more": [], "text": "né"}
    ]


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array(["A", "B"]), LETTERS, ["A", "B"]),
        (pa.array([b"ab", b"cd"]), {"type": "fixed", "name": "F", "size": 2}, [b"ab", b"cd"]),
        (pa.array([5000], pa.timestamp("us")), logical("long", "local-timestamp-millis"), None),
        (pa.array([5], pa.timestamp("us", "UTC")), logical("long", "timestamp-nanos"), None),
        (pa.array([5000], pa.time64("us")), logical("int", "time-millis"), None),
        (pa.array([[("a", 1)]], COUNTS), {"type": "map", "values": ["null", "int"]}, [{"a": 1}]),
    ],
    ids=lambda each: str(getattr(each, "type", ""))[:30],
)
def test_other_types_that_take_a_column(array: pa.Array, kind: Any, expected: Any) -> None:
    schema = record(field("x", kind))
    rows = decoded(encoded(pa.record_batch({"x": array}), schema), schema)
    if expected is None:
        parsed = fastavro.parse_schema(schema)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"x": rows[0]["x"]})
        assert out.getvalue() == encoded(pa.record_batch({"x": array}), schema)[0]
        expected = [rows[0]["x"]]
        assert rows[0]["x"] != 0
    assert [row["x"] for row in rows] == expected


def test_a_uuid_is_looked_at() -> None:
    schema = record(field("x", {"type": "string", "logicalType": "uuid"}))
    good = "01234567-89ab-cdef-0123-456789abcdef"
    assert str(decoded(encoded(pa.record_batch({"x": [good]}), schema), schema)[0]["x"]) == good
    with pytest.raises(
        Unwritable, match=r"`x` has 1 values that are no UUIDs, such as x=.*row 1 of 2"
    ):
        encoded(pa.record_batch({"x": [good, good[:-1]]}), schema)


@pytest.mark.parametrize(
    ("kind", "writer"),
    [
        (pa.int64(), "int"),
        (pa.uint32(), "int"),
        (pa.uint64(), "long"),
        (pa.int64(), "double"),
        (pa.int32(), "float"),
        (pa.float64(), "float"),
        (pa.float64(), "long"),
        (pa.string(), "int"),
        (pa.bool_(), "int"),
        (pa.decimal128(9, 2), logical("bytes", "decimal", precision=9, scale=1)),
        (pa.decimal128(9, 2), logical("bytes", "decimal", precision=9, scale=3)),
        (pa.decimal128(9, 2), "bytes"),
        (pa.decimal128(9, 2), "string"),
        (pa.int64(), logical("long", "timestamp-micros")),
        (pa.timestamp("us"), logical("long", "timestamp-micros")),
        (pa.timestamp("us", "UTC"), logical("long", "local-timestamp-micros")),
        (pa.timestamp("us", "UTC"), "long"),
        (pa.date32(), "int"),
        (pa.binary(), "string"),
        (pa.binary(), ["null", "string", "int"]),
        (pa.map_(pa.int8(), pa.int8()), {"type": "map", "values": "int"}),
        (pa.list_(pa.int64()), {"type": "array", "items": "int"}),
        (pa.struct([("a", pa.int8())]), "int"),
    ],
    ids=str,
)
def test_a_type_that_would_lose_values_is_refused_at_once(kind: pa.DataType, writer: Any) -> None:
    with pytest.raises(Unwritable, match=r"column `x.*cast it in the view, or change the schema"):
        avro_encoder(pa.schema([("x", kind)]), json.dumps(record(field("x", writer))))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            record(field("y", ["null", "int"])),
            "no field for the column `x`; it has: y. Add the field",
        ),
        (record(field("x", "int"), field("y", "int")), "wants the field `y`, which has no default"),
        (record(field("x", "int"), field("y", "bytes", default="a")), "default of the field `y`"),
        ("int", "not a record"),
        ("{", "cannot be read"),
        ({"type": "fixed", "name": "F"}, "cannot be read"),
    ],
    ids=str,
)
def test_a_schema_that_does_not_fit_the_columns_is_refused(schema: Any, told: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(Unwritable) as caught:
        avro_encoder(pa.schema([("x", pa.int8())]), text)
    assert told in str(caught.value)


def test_types_of_other_schemas_can_be_named() -> None:
    other = json.dumps({"type": "enum", "name": "shop.Size", "symbols": ["S", "M"]})
    schema = json.dumps(record(field("x", "shop.Size")))
    batch = pa.record_batch({"x": ["M", "S"]})
    assert avro_encoder(batch.schema, schema, [other]).encode(batch).to_pylist() == [b"\2", b"\0"]


# --- values that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "kind", "told"),
    [
        (
            pa.array([1, None, None]),
            "long",
            "`x` has 2 values that are null, and the schema has no room",
        ),
        (
            pa.array([[], [1, None]]),
            {"type": "array", "items": "long"},
            "`x.element` has 1 values that are null",
        ),
        (
            pa.array([None, {"a": None}], pa.struct([("a", pa.int8())])),
            ["null", {"type": "record", "name": "A", "fields": [field("a", "int")]}],
            "`x.a` has 1 values that are null",
        ),
        (
            pa.array([0, 1], pa.timestamp("us")),
            logical("long", "local-timestamp-millis"),
            "are no whole milliseconds",
        ),
        (
            pa.array([0, 2**62], pa.timestamp("us")),
            logical("long", "local-timestamp-nanos"),
            "are too large for 64 bits",
        ),
        (pa.array(["A", "C"]), LETTERS, "none of the symbols of the enum: B, A"),
        (pa.array([b"ab", b"a"]), {"type": "fixed", "name": "F", "size": 2}, "do not have 2 bytes"),
        (
            pa.array([[], [("a", 1), ("a", 2)]], COUNTS),
            {"type": "map", "values": "int"},
            "hold a key twice",
        ),
        (
            pa.array([[], [("a", None)]], COUNTS),
            {"type": "map", "values": "int"},
            "`x.value` has 1 values that are null",
        ),
    ],
    ids=range(9),
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(
    array: pa.Array, kind: Any, told: str
) -> None:
    batch = pa.record_batch({"x": array})
    encoder = avro_encoder(batch.schema, json.dumps(record(field("x", kind))))
    with pytest.raises(Unwritable) as caught:
        encoder.encode(batch)
    assert told in str(caught.value)
    assert f"the first is in row 1 of {len(array)}" in str(caught.value)
    assert len(encoder.encode(batch.slice(0, 1))) == 1


def test_a_decimal_with_more_digits_than_its_type_is_refused() -> None:
    for precision, size in ((5, None), (5, 3), (30, 13)):
        raw = (2**121).to_bytes(16, "little")
        kind = pa.decimal128(precision, 0)
        array = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(raw)])
        form = {"logicalType": "decimal", "precision": precision}
        writer = {"type": "bytes"} if size is None else {"type": "fixed", "name": "F", "size": size}
        batch = pa.record_batch({"x": array})
        with pytest.raises(Unwritable, match="more digits"):
            encoded(batch, record(field("x", {**form, **writer})))


@pytest.mark.parametrize(
    ("schema", "name", "told"),
    [
        (pa.schema([("a b", pa.int8())]), "Row", "column `a b` has a name that Avro cannot spell"),
        (pa.schema([("a", pa.struct([("ü", pa.int8())]))]), "Row", "column `a.ü` has a name"),
        (pa.schema([("a", pa.int8())]), "my topic", "no name of an Avro record"),
        (pa.schema([("a", pa.month_day_nano_interval())]), "Row", "which Avro cannot hold"),
        (pa.schema([("a", pa.null())]), "Row", "which Avro cannot hold"),
        (pa.schema([("_weight", pa.int8())]), "Row", "no part of a message"),
    ],
    ids=str,
)
def test_what_avro_cannot_spell_is_refused(schema: pa.Schema, name: str, told: str) -> None:
    with pytest.raises(Unwritable) as caught:
        derived_avro_schema(schema, name)
    assert told in str(caught.value)

"""Messages of many schemas in one batch, each read by its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from laminar_dagster.clients.schema_registry import RetryPolicy, SchemaRegistry
from laminar_dagster.core.errors import DecodeFailed, RegistryUnavailable
from laminar_dagster.sources.formats.avro import AvroDecoder
from laminar_dagster.sources.formats.found_columns import FoundColumn
from laminar_dagster.sources.formats.protobuf import ProtobufDecoder
from laminar_dagster.sources.formats.schema_discovery import columns_of, mismatches
from tests.unit.sources.formats import protobuf_cases as cases
from tests.unit.sources.formats.messages import by_place, records_of
from tests.unit.sources.formats.small_registry import SmallRegistry, small_registry


@pytest.fixture
def held() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        yield found


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Event",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO(b"\0" + schema_id.to_bytes(4))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


OLD = record(id="int", name="string", gone="string")
NEW = record(extra=["null", "double"], id="long", name=["null", "string"])
OTHER = record(id="string", name="string")
COLUMNS = {"id": "bigint", "name": "string", "extra": "double"}


def test_schemas_change_in_the_middle_of_a_batch(held: SmallRegistry) -> None:
    held.add(1, OLD)
    held.add(2**31 - 1, NEW)
    held.add(3, OTHER)
    held.add(4, "syntax = 'proto3';", schemaType="PROTOBUF")
    messages = []
    for number in range(40):
        messages += [
            framed(1, OLD, {"id": number, "name": "é" * number, "gone": "x"}),
            framed(2**31 - 1, NEW, {"extra": 0.5, "id": 2**40 + number, "name": None}),
            framed(3, OTHER, {"id": "1", "name": "n"}),
            framed(77, "int", 1),
            framed(4, "int", 1),
            b"\0\0\0\0",
            b"",
            b"\x01\0\0\0\x01abc",
        ]
    reader = AvroDecoder(cases.declared(COLUMNS), SchemaRegistry(held.url))
    found = reader.decode(records_of(messages))
    rows, reasons = by_place(found)
    assert len(rows) == 80
    assert found.positions.tolist() == sorted(found.positions.tolist())
    assert [each.position for each in found.bad] == sorted(each.position for each in found.bad)
    for number in range(40):
        place = 8 * number
        assert rows[place] == {"id": number, "name": "é" * number, "extra": None}
        assert rows[place + 1] == {"id": 2**40 + number, "name": None, "extra": 0.5}
        assert [reasons[place + each] for each in range(2, 8)] == [
            "schema id 3: `id`: string cannot become int64",
            "schema id 77 is not in the registry",
            "schema id 4: it is a schema of PROTOBUF, not of AVRO",
            "shorter than the 5 bytes that name a schema",
            "shorter than the 5 bytes that name a schema",
            "begins with byte 1 instead of 0 and a schema's id",
        ]
    assert found.schema_ids == {1, 2**31 - 1}
    # Plans are kept; only what was not there is asked for again.
    asked = len(held.requests)
    reader.decode(records_of(messages))
    assert held.requests[asked:] == ["/schemas/ids/77"]


def test_records_in_any_order_of_the_buffer(held: SmallRegistry) -> None:
    held.add(1, OLD)
    values = [{"id": n, "name": f"name {n}", "gone": ""} for n in range(30)]
    records = records_of([framed(1, OLD, each) for each in values])
    order = np.random.default_rng(1).permutation(30)
    mixed = type(records)(
        records.data, records.starts[order], records.ends[order], records.positions, False
    )
    rows, _ = by_place(AvroDecoder(cases.declared(COLUMNS), SchemaRegistry(held.url)).decode(mixed))
    assert [rows[place]["name"] for place in range(30)] == [f"name {n}" for n in order]


def test_problems_can_stop_instead(held: SmallRegistry) -> None:
    held.add(3, OTHER)
    registry, schema = SchemaRegistry(held.url), cases.declared(COLUMNS)
    stopping = AvroDecoder(schema, registry, "orders", on_unknown="fail", on_incompatible="fail")
    good = framed(3, OTHER, {"id": "1", "name": "n"})
    with pytest.raises(DecodeFailed, match=r"source orders, record at 101: schema id 3: `id`"):
        stopping.decode(records_of([b"", good]))
    with pytest.raises(DecodeFailed, match="record at 100: schema id 9 is not in the registry"):
        stopping.decode(records_of([framed(9, "int", 1)]))


def test_a_registry_that_is_away_is_no_fault_of_the_records(held: SmallRegistry) -> None:
    held.failures = [503] * 100
    registry = SchemaRegistry(held.url, retry=RetryPolicy(0.01, 0.01, patience=0.05))
    with pytest.raises(RegistryUnavailable):
        AvroDecoder(cases.declared(COLUMNS), registry).decode(records_of([framed(9, "int", 1)]))


def test_types_of_other_subjects(held: SmallRegistry) -> None:
    city = {"type": "record", "name": "geo.City", "fields": [{"name": "zip", "type": "int"}]}
    held.add_version("city", 2, city)
    person = record(id="int", city="geo.City")
    held.add(1, person, references=[{"name": "geo.City", "subject": "city", "version": 2}])
    registry = SchemaRegistry(held.url)
    reader = AvroDecoder(cases.declared({"id": "int", "city": "struct<zip int>"}), registry)
    whole = record(id="int", city=city)
    rows, _ = by_place(reader.decode(records_of([framed(1, whole, {"id": 1, "city": {"zip": 8}})])))
    assert rows == {0: {"id": 1, "city": {"zip": 8}}}


PROTO = """
syntax = "proto3";
import "common/money.proto";
message First { int32 id = 1; common.Money paid = 2; }
message Second { message Deep { int32 none = 1; } message Deeper { string id = 1; int32 x = 2; } }
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'


def test_protobuf_messages_say_which_message_they_are(held: SmallRegistry) -> None:
    held.add_version("money", 1, MONEY, schemaType="PROTOBUF")
    needs = [{"name": "common/money.proto", "subject": "money", "version": 1}]
    held.add(9, PROTO, schemaType="PROTOBUF", references=needs)
    registry = SchemaRegistry(held.url)
    schema = cases.declared({"id": "int", "paid": "struct<cents bigint>", "x": "int"})
    head = b"\0\0\0\0\x09"
    first = b"\x08\x05\x12\x02\x08\x07"
    messages = [
        head + b"\x00" + first,
        head + b"\x02\x00" + first,
        head + b"\x04\x02\x00" + b"\x08\x01",
        head + b"\x04\x02\x02" + b"\x0a\x00",
        head + b"\x02\x06" + first,
        head + b"\x01" + first,
        head + b"\xfe\xff\xff\xff\x0f",
        head + b"\x04",
        head,
    ] * 3
    found = ProtobufDecoder(schema, registry).decode(records_of(messages))
    rows, reasons = by_place(found)
    assert found.schema_ids == {9}
    for begin in (0, 9, 18):
        assert rows[begin] == rows[begin + 1] == {"id": 5, "paid": {"cents": 7}, "x": None}
        assert rows[begin + 2] == {"id": None, "paid": None, "x": None}
        assert [reasons[begin + each] for each in range(3, 9)] == [
            "`id`: string cannot become int32",
            "the Protobuf schema has no message at [3]",
            "the path of the message is longer than 32 steps",
            "the path of the message is longer than 32 steps",
            "the bytes end within the path of the message",
            "the bytes end within the path of the message",
        ]


def test_columns_of_an_avro_schema(held: SmallRegistry) -> None:
    held.add_version(
        "orders-value",
        1,
        record(
            id="long",
            at=["null", {"type": "long", "logicalType": "timestamp-millis"}],
            price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            tags={"type": "array", "items": ["null", "string"]},
            by={"type": "map", "values": record(n="int", me=["null", "Event"]) | {"name": "In"}},
            odd=["string", "int"],
            wide=["int", "null", "long"],
            me=["null", "Event"],
        ),
    )
    found = SchemaRegistry(held.url).latest("orders-value")
    assert columns_of(found) == [
        FoundColumn("id", "bigint", False),
        FoundColumn("at", "timestamp", True),
        FoundColumn("price", "decimal(9, 2)", False),
        FoundColumn("tags", "array<string>", False),
        FoundColumn("by", "map<string, struct<n: int>>", False),
        FoundColumn("odd", "", False),
        FoundColumn("wide", "bigint", True),
        FoundColumn("me", "", True),
    ]
    usable = {each.name: each.type for each in columns_of(found) if each.type}
    assert mismatches(cases.declared(usable), found) == []
    declared = pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("tag", pa.string()),
            pa.field("price", pa.decimal128(9, 2), nullable=False),
        ]
    )
    assert mismatches(declared, found) == [
        "`id`: long cannot become string",
        "`at` is NOT NULL, and may be null in the schema",
        "`tag` is not in the schema: it would always be null",
    ]


def test_columns_of_a_protobuf_schema(held: SmallRegistry) -> None:
    held.add_version("events-value", 1, cases.PROTO3, schemaType="PROTOBUF")
    found = SchemaRegistry(held.url).latest("events-value")
    columns = {each.name: each for each in columns_of(found, "shop.Event")}
    assert columns["u64"] == FoundColumn("u64", "decimal(20, 0)", False)
    assert columns["maybe"] == FoundColumn("maybe", "int", True)
    assert columns["inner"].type == (
        "struct<number: int, name: string, deltas: array<bigint>, on: boolean>"
    )
    assert columns["at"].type == "timestamp"
    assert columns["text"].type == "string"
    usable = cases.declared({name: each.type for name, each in columns.items()})
    assert mismatches(usable, found, "shop.Event") == []
    declared = cases.declared({"s": "int", "ss": "string"})
    assert mismatches(declared, found, "shop.Event") == [
        "`s`: string cannot become int32",
        "`ss` is not in the schema: it would always be null",
    ]
    with pytest.raises(ValueError, match="has no message `Nothing`; it has: "):
        columns_of(found, "Nothing")


def test_executors_load_the_libraries_only_when_they_need_them() -> None:
    heavy = ("fastavro", "google.protobuf", "urllib3", "grpc", "grpc_tools", "confluent_kafka")
    modules = "laminar_dagster.sources.formats.avro, laminar_dagster.sources.formats.protobuf"
    code = f"import sys, json, {modules}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "laminar_dagster.sources.formats.avro" in loaded
    assert not [name for name in heavy if name in loaded]

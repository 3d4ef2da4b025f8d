"""Schemas from a real registry: registered over its own protocol, and read back by the client."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
import urllib3

from infra.schema_registry import SchemaRegistryEndpoint
from laminar_dagster.clients.schema_registry import SchemaRegistry, UnknownSchema
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.formats.avro import AvroDecoder
from laminar_dagster.sources.formats.protobuf import ProtobufDecoder
from laminar_dagster.sources.formats.schema_discovery import mismatches
from tests.unit.sources.formats import protobuf_cases as cases
from tests.unit.sources.formats.messages import by_place, records_of

pytestmark = pytest.mark.service("schema_registry")

CITY = {"type": "record", "name": "geo.City", "fields": [{"name": "zip", "type": "int"}]}
MONEY = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'
ORDER = """
syntax = "proto3";
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Unused { int32 x = 1; }
message Order { int64 id = 1; common.Money paid = 2; google.protobuf.Timestamp at = 3; }
"""


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Person",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def register(
    where: SchemaRegistryEndpoint,
    subject: str,
    schema: Any,
    kind: str = "AVRO",
    references: list[dict[str, Any]] | None = None,
) -> int:
    """Register a schema and return its id."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    answer = urllib3.request(
        "POST",
        f"{where.url}/subjects/{subject}/versions",
        json={"schema": text, "schemaType": kind, "references": references or []},
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    assert answer.status == 200, answer.data
    return int(answer.json()["id"])


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + body


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_of_two_versions_and_a_type_of_another_subject(
    schema_registry_service: SchemaRegistryEndpoint,
) -> None:
    register(schema_registry_service, "city", CITY)
    needs = [{"name": "geo.City", "subject": "city", "version": 1}]
    old = record(id="int", city=CITY)
    new = record(id="long", city=CITY, name=["null", "string"])
    bare_old, bare_new = (json.loads(json.dumps(each)) for each in (old, new))
    bare_old["fields"][1]["type"] = bare_new["fields"][1]["type"] = "geo.City"
    first = register(schema_registry_service, "people-old", bare_old, references=needs)
    second = register(schema_registry_service, "people-new", bare_new, references=needs)
    assert first != second
    registry = SchemaRegistry(schema_registry_service.url)
    columns = cases.declared({"id": "bigint", "city": "struct<zip int>", "name": "string"})
    found = AvroDecoder(columns, registry).decode(
        records_of(
            [
                framed(first, avro(old, {"id": 1, "city": {"zip": 8}})),
                framed(second, avro(new, {"id": 2**40, "city": {"zip": 9}, "name": "n"})),
                framed(second + 1000, b""),
            ]
        )
    )
    rows, reasons = by_place(found)
    assert rows == {
        0: {"id": 1, "city": {"zip": 8}, "name": None},
        1: {"id": 2**40, "city": {"zip": 9}, "name": "n"},
    }
    assert reasons == {2: f"schema id {second + 1000} is not in the registry"}
    assert found.schema_ids == {first, second}
    latest = registry.latest("people-new")
    assert latest.schema_id == second
    assert mismatches(columns, latest) == []
    assert mismatches(cases.declared({"id": "string"}), latest) == [
        "`id`: long cannot become string"
    ]


def test_protobuf_with_imports(schema_registry_service: SchemaRegistryEndpoint) -> None:
    register(schema_registry_service, "money", MONEY, "PROTOBUF")
    needs = [{"name": "common/money.proto", "subject": "money", "version": 1}]
    number = register(schema_registry_service, "orders-value", ORDER, "PROTOBUF", needs)
    registry = SchemaRegistry(schema_registry_service.url)
    assert registry.schema(number).kind == "PROTOBUF"
    columns = cases.declared({"id": "bigint", "paid": "struct<cents bigint>", "at": "timestamp"})
    body = b"\x08\x05\x12\x02\x08\x07\x1a\x02\x08\x01"
    found = ProtobufDecoder(columns, registry).decode(
        records_of([framed(number, b"\x02\x02" + body), framed(number, b"\x00\x08\x01")])
    )
    rows, reasons = by_place(found)
    assert reasons == {}
    assert rows[0]["paid"] == {"cents": 7}
    assert rows[0]["at"].isoformat() == "1970-01-01T00:00:01+00:00"
    assert rows[1] == {"id": None, "paid": None, "at": None}
    assert mismatches(columns, registry.latest("orders-value"), "Order") == []


def test_what_is_not_there(schema_registry_service: SchemaRegistryEndpoint) -> None:
    registry = SchemaRegistry(schema_registry_service.url)
    with pytest.raises(UnknownSchema, match="schema id 1999999999 is not in the registry"):
        registry.schema(1_999_999_999)
    with pytest.raises(UnknownSchema, match="subject nobody, version latest"):
        registry.latest("nobody")
    elsewhere = schema_registry_service.url.replace("/ccompat/v7", "/nowhere")
    with pytest.raises(InvalidConfig, match="is this a schema registry's address"):
        SchemaRegistry(elsewhere).schema(1)

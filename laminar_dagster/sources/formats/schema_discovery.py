"""The columns of a schema in the registry, and declared columns that do not match it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from laminar_dagster.clients.schema_registry import RegisteredSchema
from laminar_dagster.encoding.avro_schema import parse_avro
from laminar_dagster.encoding.protobuf_schema import MAIN, compile_proto, is_map, load
from laminar_dagster.sources.formats.avro_plan import MAX_PRECISION, plan_of
from laminar_dagster.sources.formats.found_columns import FoundColumn, around, struct_of
from laminar_dagster.sources.formats.json_schema import json_schema_columns
from laminar_dagster.sources.formats.protobuf_plan import message_plan

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_AVRO: Final = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "bytes": "binary", "string": "string", "enum": "string", "fixed": "binary",
}  # fmt: skip
_LOGICAL: Final = {
    "date": "date", "uuid": "string", "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp", "timestamp-nanos": "timestamp",
    "local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz",
    "local-timestamp-nanos": "timestamp_ntz",
}  # fmt: skip
# By the numbers of ``FieldDescriptor.type``.
_PROTOBUF: Final = {
    1: "double", 2: "float", 3: "bigint", 4: "decimal(20, 0)", 5: "int", 6: "decimal(20, 0)",
    7: "bigint", 8: "boolean", 9: "string", 12: "binary", 13: "bigint", 14: "string", 15: "int",
    16: "bigint", 17: "int", 18: "bigint",
}  # fmt: skip
_MESSAGES: Final = {
    "google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "bigint",
    "google.protobuf.DoubleValue": "double", "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "bigint", "google.protobuf.UInt64Value": "decimal(20, 0)",
    "google.protobuf.Int32Value": "int", "google.protobuf.UInt32Value": "bigint",
    "google.protobuf.BoolValue": "boolean", "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "binary",
}  # fmt: skip
# Types for a union: the first one that holds all of its branches is chosen.
_HOLDS: Final = {
    "bigint": {"int", "bigint"},
    "double": {"int", "bigint", "float", "double"},
    "string": {"string", "binary"},
}


def columns_of(found: RegisteredSchema, message: str = "") -> list[FoundColumn]:
    """The fields of a schema as columns.

    Args:
        found: The schema.
        message: For Protobuf, the full name of the message; by default the first one.

    Raises:
        ValueError: The schema cannot be read, or does not describe a record.
    """
    if found.kind == "PROTOBUF":
        root = _message(found, message)
        return [_proto_column(each, (root.full_name,)) for each in root.fields]
    if found.kind == "JSON":
        return json_schema_columns(found.text, {e.name: e.schema.text for e in found.in_order()})
    writer, named = _avro(found)
    if not isinstance(writer, Mapping) or writer["type"] not in ("record", "error"):
        raise ValueError("the schema is not a record")
    return [_avro_column(each, named, (writer["name"],)) for each in writer["fields"]]


def mismatches(declared: pa.Schema, found: RegisteredSchema, message: str = "") -> list[str]:
    """The problems of declared columns with a schema; empty if they match it.

    Raises:
        ValueError: The schema cannot be read, or does not describe a record.
    """
    known = {each.name: each for each in columns_of(found, message)}
    writer = _message(found, message) if found.kind == "PROTOBUF" else _avro(found)
    problems: list[str] = []
    for each in declared:
        alone = pa.schema([each])
        try:
            if isinstance(writer, tuple):
                plan = plan_of(alone, *writer)
                lacks = not any(isinstance(field, tuple) for field in plan.fields)
            else:
                lacks = message_plan(writer, alone).fields == [None]
        except ValueError as error:
            problems.append(str(error))
            continue
        column = known.get(each.name)
        if lacks:
            problems.append(f"`{each.name}` is not in the schema: it would always be null")
        elif not each.nullable and column is not None and column.nullable:
            problems.append(f"`{each.name}` is NOT NULL, and may be null in the schema")
    return problems


def _avro(found: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    if found.kind != "AVRO":
        raise ValueError(f"it is a schema of {found.kind}, not of AVRO or PROTOBUF")
    return parse_avro(found.text, [each.schema.text for each in found.in_order()])


def _avro_column(
    field: Mapping[str, Any], named: Mapping[str, Any], above: tuple[str, ...]
) -> FoundColumn:
    writer = field["type"]
    nullable = writer == "null" or (isinstance(writer, list) and "null" in writer)
    return FoundColumn(field["name"], _avro_type(writer, named, above), nullable)


def _avro_type(writer: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> str:
    """The SQL type of an Avro type; empty if there is none."""
    if isinstance(writer, list):
        kinds = {_avro_type(each, named, above) for each in writer if each != "null"}
        if len(kinds) == 1:
            return kinds.pop()
        return next((kind for kind, holds in _HOLDS.items() if kinds <= holds), "")
    if isinstance(writer, str):
        if writer not in named:
            return _AVRO.get(writer, "")
        # A recursive type has no SQL type.
        return "" if writer in above else _avro_type(named[writer], named, above)
    kind = writer["type"]
    if not isinstance(kind, str) or kind in named:
        return _avro_type(kind, named, above)
    logical = writer.get("logicalType")
    if logical == "decimal" and writer["precision"] <= MAX_PRECISION:
        return f"decimal({writer['precision']}, {writer.get('scale', 0)})"
    match kind:
        case "array":
            return around("array<{}>", _avro_type(writer["items"], named, above))
        case "map":
            return around("map<string, {}>", _avro_type(writer["values"], named, above))
        case "record" | "error":
            within = (*above, writer["name"])
            fields = {e["name"]: _avro_type(e["type"], named, within) for e in writer["fields"]}
            return struct_of(fields)
    return _LOGICAL.get(logical or "", _AVRO.get(kind, ""))


def _message(found: RegisteredSchema, name: str) -> Descriptor:
    imports = {each.name: each.schema.text for each in found.in_order()}
    file = load(compile_proto(found.text, imports))[MAIN]
    messages: list[Descriptor] = list(file.message_types_by_name.values())
    for each in messages:
        if not name or each.full_name == name:
            return each
    known = ", ".join(each.full_name for each in messages) or "none"
    raise ValueError(f"the Protobuf schema has no message `{name}`; it has: {known}")


def _proto_column(field: FieldDescriptor, above: tuple[str, ...]) -> FoundColumn:
    nullable = field.has_presence and not field.is_repeated
    return FoundColumn(field.name, _proto_field(field, above), nullable)


def _proto_field(field: FieldDescriptor, above: tuple[str, ...]) -> str:
    if is_map(field):
        assert field.message_type is not None
        entry = field.message_type.fields_by_name
        key, value = _proto_type(entry["key"], above), _proto_type(entry["value"], above)
        return f"map<{key}, {value}>" if key and value else ""
    kind = _proto_type(field, above)
    return around("array<{}>", kind) if field.is_repeated else kind


def _proto_type(field: FieldDescriptor, above: tuple[str, ...]) -> str:
    message = field.message_type
    if message is None:
        return _PROTOBUF.get(field.type, "")
    if message.full_name in _MESSAGES:
        return _MESSAGES[message.full_name]
    if message.full_name in above:
        return ""
    within = (*above, message.full_name)
    return struct_of({each.name: _proto_field(each, within) for each in message.fields})

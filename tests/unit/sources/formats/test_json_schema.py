"""What columns a JSON Schema describes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laminar_dagster.clients.schema_registry import Reference, RegisteredSchema
from laminar_dagster.sources.formats.json_schema import json_schema_columns
from laminar_dagster.sources.formats.schema_discovery import columns_of


def types_of(properties: dict[str, Any], **more: Any) -> dict[str, str]:
    text = json.dumps({"type": "object", "properties": properties, **more})
    return {each.name: each.type for each in json_schema_columns(text)}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "maximum": 2**64 - 1}, "decimal(38, 0)"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"const": 1}, "bigint"),
        ({"enum": ["a", 1]}, ""),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["string", "integer"]}, ""),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, ""),
        ({"type": "array", "items": {"type": "string"}}, "array<string>"),
        ({"type": "array"}, ""),
        (
            {"properties": {"a b": {"type": "integer"}, "odd": {}, "c": {"type": "string"}}},
            "struct<`a b`: bigint, c: string>",
        ),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string, double>"),
        ({"type": "object"}, ""),
        ({"type": "null"}, ""),
        ({}, ""),
        (True, ""),
    ],
)
def test_a_type_for_each_kind_of_property(schema: Any, kind: str) -> None:
    assert types_of({"x": schema}) == {"x": kind}


def test_null_may_be_what_is_not_required_or_says_so() -> None:
    text = {
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "note": {"type": ["null", "string"]},
        },
        "required": ["id", "note"],
    }
    found = json_schema_columns(json.dumps(text))
    assert {each.name: each.nullable for each in found} == {"id": False, "name": True, "note": True}


def test_references_are_followed_and_circles_left() -> None:
    node = {
        "properties": {"value": {"type": "number"}, "next": {"$ref": "#/definitions/node"}},
    }
    found = types_of(
        {
            "list": {"$ref": "#/definitions/node"},
            "lost": {"$ref": "#/definitions/other"},
            "far": {"$ref": "https://elsewhere.invalid/schema"},
        },
        definitions={"node": node},
    )
    assert found == {"list": "struct<value: double>", "lost": "", "far": ""}


def test_parts_of_a_schema_are_put_together() -> None:
    base = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
    text = json.dumps(
        {
            "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"at": {"type": "string"}}}],
            "$defs": {"base": base},
        }
    )
    found = [(each.name, each.type, each.nullable) for each in json_schema_columns(text)]
    assert found == [("id", "bigint", False), ("at", "string", True)]


def test_a_schema_of_the_registry_may_need_others() -> None:
    money = RegisteredSchema("JSON", json.dumps({"properties": {"cents": {"type": "integer"}}}))
    order = {"properties": {"paid": {"$ref": "money.json"}}}
    found = RegisteredSchema("JSON", json.dumps(order), (Reference("money.json", money),))
    assert [each.type for each in columns_of(found)] == ["struct<cents: bigint>"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "does not describe an object"),
        ('{"type": "string"}', "does not describe an object"),
        ('{"properties": {}}', "does not describe an object"),
        ('{"$ref": "#"}', "does not describe an object"),
    ],
)
def test_what_describes_no_object_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        json_schema_columns(text)

"""The columns that a JSON Schema describes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from laminar_dagster.sources.formats.found_columns import FoundColumn, around, struct_of

_PLAIN: Final = {"boolean": "boolean", "integer": "bigint", "number": "double", "string": "string"}
# RFC 3339: a ``date-time`` has a UTC offset.
_TEXTS: Final = {"date-time": "timestamp", "date": "date"}
_NUMBERS: Final = {"bigint", "double"}
_MOST: Final = 2**63 - 1


def json_schema_columns(text: str, others: Mapping[str, str] = {}) -> list[FoundColumn]:
    """The properties of the object that a schema describes, as columns.

    Args:
        text: The schema.
        others: The schemas that it refers to, by the names in its references.

    Raises:
        ValueError: The schema cannot be read, or does not describe an object.
    """
    try:
        documents = {"": json.loads(text), **{each: json.loads(others[each]) for each in others}}
    except ValueError as error:
        raise ValueError(f"the JSON Schema is not JSON: {error}") from None
    reader = _Reader(documents)
    try:
        root = reader.resolved(documents[""], "", ())
    except RecursionError:
        root = None
    if root is None or not root.properties:
        raise ValueError("the JSON Schema does not describe an object with properties")
    return [
        FoundColumn(name, *reader.column(each, name in root.required, root.home, root.above))
        for name, each in root.properties.items()
    ]


@dataclass(frozen=True, slots=True)
class _Object:
    """The members of an object.

    Attributes:
        home: The document that contains it, which its references are relative to.
        above: The references that led to it: one that comes again is a recursion without end.
    """

    properties: Mapping[str, Any]
    required: frozenset[str]
    home: str
    above: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Reader:
    documents: Mapping[str, Any]

    def column(
        self, schema: Any, is_required: bool, home: str, above: tuple[str, ...]
    ) -> tuple[str, bool]:
        """The type, and whether it may be null."""
        kind, has_null = self._type(schema, home, above)
        return kind, has_null or not is_required

    def resolved(self, schema: Any, home: str, above: tuple[str, ...]) -> _Object | None:
        """The object that a schema describes; None if it describes something else."""
        if not isinstance(schema, Mapping):
            return None
        if "$ref" in schema:
            found = self._referred(str(schema["$ref"]), home, above)
            return self.resolved(*found) if found else None
        members = (self.resolved(each, home, above) for each in _list(schema, "allOf"))
        parts = [each for each in members if each]
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and properties:
            names = (str(each) for each in _list(schema, "required"))
            parts.append(_Object(properties, frozenset(names), home, above))
        if not parts or len({each.home for each in parts}) > 1:
            return None
        return _Object(
            {name: each for part in parts for name, each in part.properties.items()},
            frozenset(name for part in parts for name in part.required),
            parts[0].home,
            tuple(dict.fromkeys(each for part in parts for each in part.above)),
        )

    def _type(self, schema: Any, home: str, above: tuple[str, ...]) -> tuple[str, bool]:
        if not isinstance(schema, Mapping):
            return "", True
        if "$ref" in schema:
            found = self._referred(str(schema["$ref"]), home, above)
            return self._type(*found) if found else ("", True)
        choices = [*_list(schema, "oneOf"), *_list(schema, "anyOf")]
        if choices:
            return _joined([self._type(each, home, above) for each in choices])
        if "enum" in schema or "const" in schema:
            values = _list(schema, "enum") or [schema.get("const")]
            return _joined([_of_value(each) for each in values])
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return _joined([self._type({**schema, "type": each}, home, above) for each in kinds])
        if kinds == "null":
            return "", True
        return self._plain(schema, kinds, home, above), False

    def _plain(
        self, schema: Mapping[str, Any], kind: Any, home: str, above: tuple[str, ...]
    ) -> str:
        if kind == "array":
            return around("array<{}>", self._type(schema.get("items"), home, above)[0])
        if kind == "integer" and isinstance(most := schema.get("maximum"), int | float):
            return "decimal(38, 0)" if most > _MOST else "bigint"
        if kind == "string":
            return _TEXTS.get(str(schema.get("format")), "string")
        if isinstance(kind, str) and kind in _PLAIN:
            return _PLAIN[kind]
        found = self.resolved(schema, home, above)
        if found:
            return struct_of(
                {
                    name: self._type(each, found.home, found.above)[0]
                    for name, each in found.properties.items()
                }
            )
        if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            inner = self._type(schema["additionalProperties"], home, above)[0]
            return around("map<string, {}>", inner)
        return ""

    def _referred(
        self, reference: str, home: str, above: tuple[str, ...]
    ) -> tuple[Any, str, tuple[str, ...]] | None:
        """The target of a reference; None if there is none, or it is recursive."""
        name, _, pointer = reference.partition("#")
        home = name or home
        place = f"{home}#{pointer}"
        if place in above or home not in self.documents:
            return None
        found = self.documents[home]
        for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                return None
            found = found[key]
        return found, home, (*above, place)


def _list(schema: Mapping[str, Any], member: str) -> Sequence[Any]:
    found = schema.get(member)
    return found if isinstance(found, list) else ()


def _of_value(value: Any) -> tuple[str, bool]:
    match value:
        case None:
            return "", True
        case bool():
            return "boolean", False
        case int():
            return "bigint", False
        case float():
            return "double", False
        case str():
            return "string", False
    return "", False


def _joined(found: Sequence[tuple[str, bool]]) -> tuple[str, bool]:
    """The type that holds all of several; null fits beside any, but is no type itself."""
    has_null = any(null for _, null in found)
    kinds = {kind for kind, null in found if kind or not null}
    if kinds == _NUMBERS:
        return "double", has_null
    return (kinds.pop() if len(kinds) == 1 else ""), has_null

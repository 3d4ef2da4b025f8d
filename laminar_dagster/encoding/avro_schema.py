"""Parses Avro schemas (JSON) and resolves their named types to full names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Named = dict[str, Any]


def parse_avro(text: str, references: Sequence[str] = ()) -> tuple[Any, Named]:
    """Parse a schema: with all type names in full, and its named types by name.

    Args:
        text: JSON.
        references: Schemas whose types it refers to, each after those that it refers to itself.

    Raises:
        ValueError: It is not an Avro schema.
    """
    import fastavro

    named: Named = {}
    try:
        for each in references:
            fastavro.parse_schema(json.loads(each), named)
        return fastavro.parse_schema(_loaded(text), named), named
    except RecursionError:
        raise ValueError("the Avro schema is nested too deeply") from None
    except Exception as error:
        # fastavro raises errors of any class (KeyError, TypeError, …) for malformed schemas.
        raise ValueError(f"the Avro schema cannot be read: {error!r}") from None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A primitive type may be written without quotes: `string`.
        return text


def type_name(writer: Any) -> str:
    """Describe a type for an error message."""
    if isinstance(writer, list):
        return f"union of {', '.join(type_name(each) for each in writer)}"
    if isinstance(writer, Mapping):
        return str(writer.get("logicalType") or type_name(writer["type"]))
    return str(writer)


def resolved(schema: Any, named: Named) -> tuple[str, Any]:
    """Return a type's name and its details: the branches of a union, a mapping otherwise."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        return resolved(named[schema], named) if schema in named else (schema, {})
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return resolved(kind, named)
    return ("record" if kind == "error" else kind), schema

"""Avro's own description of records: schemas as JSON, with all names in full."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Named = dict[str, Any]


def parse_avro(text: str, references: Sequence[str] = ()) -> tuple[Any, Named]:
    """A schema with all names in full, and its named types by name.

    Args:
        text: JSON.
        references: The schemas whose types it names, each after those that it names itself.

    Raises:
        ValueError: It is no schema.
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
        # The library raises whatever its code runs into where a schema is odd.
        raise ValueError(f"the Avro schema cannot be read: {error!r}") from None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A primitive type may stand there without quotes.
        return text


def type_name(writer: Any) -> str:
    """What a type is, for a message."""
    if isinstance(writer, list):
        return f"union of {', '.join(type_name(each) for each in writer)}"
    if isinstance(writer, Mapping):
        return str(writer.get("logicalType") or type_name(writer["type"]))
    return str(writer)


def resolved(schema: Any, named: Named) -> tuple[str, Any]:
    """The name of a type, and its details: of a union its branches, else a mapping."""
    if isinstance(schema, list):
        return "union", schema
    if isinstance(schema, str):
        return resolved(named[schema], named) if schema in named else (schema, {})
    kind = schema["type"]
    if not isinstance(kind, str) or kind in named:
        return resolved(kind, named)
    return ("record" if kind == "error" else kind), schema

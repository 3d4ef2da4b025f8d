"""Derive an Avro schema from the columns of a view.

A nullable column is a union with null whose default is null, so that schema evolution can add and
remove it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from laminar_dagster.sinks.arrow_values import is_binary, is_list, is_string, plain_type
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.encoder import message_columns

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS_OF_UINT64: Final = 20
_STAMPS: Final = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def derived_avro_schema(schema: pa.Schema, name: str) -> str:
    """A schema for rows with these columns, as JSON; the same columns give the same text.

    Args:
        schema: The columns.
        name: The record's name, with its namespace.

    Raises:
        Unwritable: Avro has no type for a column, or does not allow its name.
    """
    for part in name.split("."):
        if not _NAME.fullmatch(part):
            raise Unwritable(f"`{name}` is no name of an Avro record; take letters, digits and _")
    derived = _Deriver().record(message_columns(schema), name, "")
    return json.dumps(derived, separators=(",", ":"))


class _Deriver:
    def __init__(self) -> None:
        self._taken: set[str] = set()

    def record(self, fields: list[pa.Field], name: str, path: str) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "record", "name": self._unique(name), "fields": []}
        simple = name.rpartition(".")[2]
        for field in fields:
            under = f"{path}.{field.name}" if path else field.name
            if not _NAME.fullmatch(field.name):
                raise Unwritable(
                    f"column `{under}` has a name that Avro cannot spell; rename it in the view,"
                    " with letters, digits and _"
                )
            described: dict[str, Any] = {"name": field.name}
            described["type"] = self._type(field, f"{simple}_{field.name}", under)
            if field.nullable:
                described["default"] = None
            if pa.types.is_duration(field.type):
                described["doc"] = "microseconds"
            made["fields"].append(described)
        return made

    def _unique(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _type(self, field: pa.Field, name: str, path: str) -> Any:
        plain = self._plain(plain_type(field.type), name, path)
        return ["null", plain] if field.nullable else plain

    def _plain(self, kind: pa.DataType, name: str, path: str) -> Any:
        types = pa.types
        if types.is_struct(kind):
            return self.record(list(kind), name, path)
        if types.is_map(kind):
            return self._map(kind, name, path)
        if is_list(kind):
            return {"type": "array", "items": self._type(kind.value_field, name, path)}
        if kind == pa.uint64():
            return _decimal(_DIGITS_OF_UINT64, 0)
        if types.is_decimal(kind) and kind.scale >= 0:
            return _decimal(kind.precision, kind.scale)
        if types.is_timestamp(kind):
            clock = "timestamp" if kind.tz is not None else "local-timestamp"
            return {"type": "long", "logicalType": f"{clock}-{_STAMPS[kind.unit]}"}
        if types.is_time32(kind):
            return {"type": "int", "logicalType": "time-millis"}
        if types.is_time64(kind):
            return {"type": "long", "logicalType": "time-micros"}
        if types.is_date(kind):
            return {"type": "int", "logicalType": "date"}
        for matches, found in (
            (types.is_boolean, "boolean"),
            (lambda each: types.is_integer(each) and _fits_int(each), "int"),
            (types.is_integer, "long"),
            (types.is_float64, "double"),
            (types.is_floating, "float"),
            (is_string, "string"),
            (is_binary, "bytes"),
            (types.is_duration, "long"),
        ):
            if matches(kind):
                return found
        raise Unwritable(
            f"column `{path}` is of type {kind}, which Avro cannot hold; cast it in the view"
        )

    def _map(self, kind: pa.DataType, name: str, path: str) -> Any:
        value = kind.item_field.with_name("value")
        if is_string(kind.key_type):
            return {"type": "map", "values": self._type(value, name, path)}
        pair = [kind.key_field.with_name("key").with_nullable(False), value]
        return {"type": "array", "items": self.record(pair, name, path)}


def _fits_int(kind: pa.DataType) -> bool:
    return bool(kind.bit_width + pa.types.is_unsigned_integer(kind) <= 32)


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

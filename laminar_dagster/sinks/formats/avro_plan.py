"""Plan how the columns of a view are written in a given Avro schema, once per schema.

A column is written to the field of the same name. Each column must have a field; a field without a
column is written as its default, or as null. The Avro types that each column type may become:

- BOOLEAN: boolean; integers: int, long, float, double, decimal, if they hold every value
- FLOAT: float, double; DOUBLE: double; DECIMAL: decimal with at least its digits on both sides
- STRING: string, bytes, enum, uuid; BINARY: bytes, fixed
- DATE: date; TIME: time-millis, time-micros
- TIMESTAMP: timestamp-millis, -micros, -nanos; TIMESTAMP_NTZ: local-timestamp-millis, …
- INTERVAL DAY TO SECOND: long, microseconds
- ARRAY: array; STRUCT: record; MAP: map, or an array of records with ``key`` and ``value``
- any of them: a union with such a type; the first branch that fits the column is written
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from laminar_dagster.encoding.avro_schema import Named, resolved, type_name
from laminar_dagster.sinks.arrow_values import is_binary, is_list, is_string
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats import avro_write as write
from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.times import counted

_INT: Final = (-(2**31), 2**31 - 1)
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
# The largest width, with sign, of integers that each Avro type holds exactly.
_BITS: Final = {"int": 32, "long": 64, "float": 25, "double": 54}
_DIGITS_OF_128_BITS: Final = 38
_MOST_DIGITS: Final = 76


class Planner:
    """Builds the writers for one Avro schema."""

    def __init__(self, named: Named) -> None:
        """Take the named types of the schema."""
        self._named = named

    def record(self, parts: Sequence[pa.Field], schema: Any, path: str) -> write.Record:
        """The writer for the fields of a struct, or for the columns of a view.

        Args:
            parts: The fields, of types from ``plain_type``.
            schema: The Avro schema of the record.
            path: The struct's path, for error messages; empty for the view.

        Raises:
            Unwritable: The fields do not fit the schema.
        """
        name, details = resolved(schema, self._named)
        if name != "record":
            raise Unwritable(f"{_what(path)}: the schema has a {type_name(schema)}, not a record")
        places = {part.name: place for place, part in enumerate(parts)}
        known = [field["name"] for field in details["fields"]]
        for part in parts:
            if part.name not in known:
                raise Unwritable(
                    f"the schema has no field for the column `{_under(path, part.name)}`; it has:"
                    f" {', '.join(known)}. Add the field to the schema, or leave the column out of"
                    " the view"
                )
        fields: list[tuple[str, int, write.Slot] | write.Constant] = []
        for field in details["fields"]:
            place = places.get(field["name"])
            if place is None:
                fields.append(self._without_column(field, path))
            else:
                part = parts[place]
                slot = self._slot(part.type, field["type"], _under(path, part.name))
                fields.append((part.name, place, slot))
        return write.Record(tuple(fields))

    def _slot(self, kind: pa.DataType, schema: Any, path: str) -> write.Slot:
        name, branches = resolved(schema, self._named)
        if name != "union":
            return write.Slot(self._writer(kind, schema, path))
        null = self._null(branches)
        problem: Unwritable | None = None
        for number, branch in enumerate(branches):
            if number != null:
                try:
                    return write.Slot(self._writer(kind, branch, path), number, null)
                except Unwritable as error:
                    problem = problem or error
        raise problem or _unfit(kind, schema, path)

    def _null(self, branches: Sequence[Any]) -> int | None:
        """The index of a union's null branch; None if it has none."""
        kinds = [resolved(branch, self._named)[0] for branch in branches]
        return kinds.index("null") if "null" in kinds else None

    def _writer(self, kind: pa.DataType, schema: Any, path: str) -> write.Writer:
        types = pa.types
        name, details = resolved(schema, self._named)
        logical = details.get("logicalType")
        found: write.Writer | None = None
        match name:
            case "boolean" if types.is_boolean(kind):
                found = write.Booleans()
            case "int" | "long":
                count = _count(kind, name, logical)
                found = count and write.Ints(count)
            case "float" | "double":
                found = _floats(kind, name)
            case "string" if is_string(kind):
                found = write.Stretches(is_uuid=logical == "uuid")
            case "enum" if is_string(kind):
                found = write.Symbols(tuple(details["symbols"]))
            case "bytes" | "fixed" if logical == "decimal":
                found = _decimals(kind, details)
            case "bytes" if is_binary(kind) or is_string(kind):
                found = write.Stretches()
            case "fixed" if is_binary(kind) and logical is None:
                found = write.Sized(details["size"])
            case "array" if is_list(kind):
                item = self._slot(kind.value_type, details["items"], _under(path, "element"))
                found = write.Lists(item)
            case "array" if types.is_map(kind):
                pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
                found = write.Lists(self._slot(pair, details["items"], path))
            case "map" if types.is_map(kind) and is_string(kind.key_type):
                value = self._slot(kind.item_type, details["values"], _under(path, "value"))
                found = write.Maps(value)
            case "record" if types.is_struct(kind):
                found = self.record(list(kind), schema, path)
        if found is None:
            raise _unfit(kind, schema, path)
        return found

    def _without_column(self, field: Mapping[str, Any], path: str) -> write.Constant:
        """The default of a field, or null."""
        name, branches = resolved(field["type"], self._named)
        if "default" in field:
            return write.Constant(self._default(field, path))
        null = self._null(branches) if name == "union" else None
        if null is not None:
            return write.Constant(bytes([2 * null]))
        raise Unwritable(
            f"the schema wants the field `{_under(path, field['name'])}`, which has no default and"
            " for which the view has no column; add the column, or a default to the schema"
        )

    def _default(self, field: Mapping[str, Any], path: str) -> bytes:
        import fastavro

        alone = {"type": "record", "name": "laminar.Default", "fields": [field]}
        out = io.BytesIO()
        try:
            schema = fastavro.parse_schema(alone, {**self._named})
            fastavro.schemaless_writer(out, schema, {})
        except Exception as error:
            # For a default that does not fit, fastavro raises exceptions of any type.
            raise Unwritable(
                f"the default of the field `{_under(path, field['name'])}`, for which the view has"
                f" no column, cannot be written ({error!r}); add the column"
            ) from None
        return out.getvalue()


def _count(
    kind: pa.DataType, name: str, logical: str | None
) -> Callable[[pa.Array], Int64s] | None:
    """The conversion of a column to integers for an Avro int or long; None if it does not fit."""
    types = pa.types
    clock, _, unit = (logical or "").rpartition("-")
    if types.is_integer(kind) and logical is None:
        return write.plain_count if _bits(kind) <= _BITS[name] else None
    if types.is_date(kind) and logical == "date":
        return write.plain_count
    if types.is_duration(kind) and logical is None and name == "long":
        return lambda array: counted(array, "us")
    wanted = ""
    if types.is_time(kind):
        wanted = "time"
    elif types.is_timestamp(kind):
        wanted = "local-timestamp" if kind.tz is None else "timestamp"
    if not wanted or clock != wanted or unit not in _UNITS:
        return None
    if name == "int":
        return lambda array: counted(array, _UNITS[unit], *_INT)
    return lambda array: counted(array, _UNITS[unit])


def _floats(kind: pa.DataType, name: str) -> write.Writer | None:
    form = "<f4" if name == "float" else "<f8"
    if pa.types.is_floating(kind):
        return write.Floats(form) if kind.bit_width <= (32 if name == "float" else 64) else None
    fits = pa.types.is_integer(kind) and _bits(kind) <= _BITS[name]
    return write.Floats(form) if fits else None


def _decimals(kind: pa.DataType, details: Mapping[str, Any]) -> write.Writer | None:
    precision, scale = details["precision"], details.get("scale", 0)
    if precision > _MOST_DIGITS or scale > precision:
        return None
    if pa.types.is_decimal(kind):
        before, after = kind.precision - kind.scale, max(kind.scale, 0)
    elif pa.types.is_integer(kind):
        before, after = len(str(2 ** (_bits(kind) - 1))), 0
    else:
        return None
    if before > precision - scale or after > scale:
        return None
    wide = pa.decimal128 if precision <= _DIGITS_OF_128_BITS else pa.decimal256
    return write.Decimals(wide(precision, scale), details.get("size"))


def _bits(kind: pa.DataType) -> int:
    return int(kind.bit_width) + bool(pa.types.is_unsigned_integer(kind))


def _under(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _what(path: str) -> str:
    return f"column `{path}`" if path else "the view"


def _unfit(kind: pa.DataType, schema: Any, path: str) -> Unwritable:
    return Unwritable(
        f"column `{path}` is of type {kind}, which the schema's {type_name(schema)} cannot hold"
        " without loss; cast it in the view, or change the schema"
    )

"""Plan how the columns of a view are written in a given Protobuf message, once per schema.

A column is written to the field of the same name. Each column must have a field; a field without a
column is left out. The Protobuf types that each column type may become:

- BOOLEAN: bool; integers: every integer type that holds all values, float and double too
- FLOAT: float, double; DOUBLE: double; DECIMAL: string, in decimal notation
- STRING: string, bytes, enum (by the names of its values); BINARY: bytes
- DATE: int32, days since 1970; TIME and INTERVAL DAY TO SECOND: int64, microseconds
- TIMESTAMP, TIMESTAMP_NTZ: google.protobuf.Timestamp; INTERVAL DAY TO SECOND: Duration as well
- ARRAY: repeated; STRUCT: a message; MAP: map, or repeated messages with ``key`` and ``value``
- an ARRAY or MAP within another: a message with a field ``items``
- any of them: the wrapper message of its type, such as google.protobuf.Int64Value
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.encoding.protobuf_schema import WRAPPERS, is_map, type_name, wire_name
from laminar_dagster.sinks.arrow_values import is_binary, is_list, is_string
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats import protobuf_write as write
from laminar_dagster.sinks.formats.binary.varints import zigzag
from laminar_dagster.sinks.numbers import Int64s, Numbers
from laminar_dagster.sinks.times import counted

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

# The largest width, with sign, of integers that each signed type holds.
_SIGNED: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), 32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), 64),
}
_UNSIGNED: Final = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
_FLOATS: Final = {"float": ("<f4", 32, 25), "double": ("<f8", 64, 54)}
_FIXED: Final = {"fixed32": "<u4", "fixed64": "<u8", "sfixed32": "<i4", "sfixed64": "<i8"}


def message_plan(parts: Sequence[pa.Field], message: Descriptor, path: str = "") -> write.Message:
    """The writer of structs, or of the rows of a view, as Protobuf messages.

    Args:
        parts: The fields of the struct, of types from ``plain_type``.
        message: The message type.
        path: The struct's path, for error messages; empty for the view.

    Raises:
        Unwritable: The fields do not fit the message.
    """
    chosen: dict[str, str] = {}
    fields: list[tuple[int, str, int, write.Field]] = []
    for place, part in enumerate(parts):
        under = f"{path}.{part.name}" if path else part.name
        field = message.fields_by_name.get(part.name)
        if field is None:
            known = ", ".join(each.name for each in message.fields)
            raise Unwritable(
                f"`{message.full_name}` has no field for the column `{under}`; it has: {known}."
                " Add the field to the schema, or leave the column out of the view"
            )
        oneof = field.containing_oneof
        if oneof is not None and chosen.setdefault(oneof.name, part.name) != part.name:
            raise Unwritable(
                f"the columns `{chosen[oneof.name]}` and `{part.name}` are of one oneof,"
                f" `{oneof.name}`, of which a message holds one; leave one out of the view"
            )
        fields.append((field.number, part.name, place, _field(part.type, field, under)))
    names = {part.name for part in parts}
    for field in message.fields:
        if field.is_required and field.name not in names:
            raise Unwritable(
                f"`{message.full_name}` requires the field `{field.name}`, for which the view has"
                " no column; add the column"
            )
    return write.Message(tuple((name, place, made) for _, name, place, made in sorted(fields)))


def _field(kind: pa.DataType, field: FieldDescriptor, path: str) -> write.Field:
    if is_map(field):
        return _map(kind, field, path)
    if not field.is_repeated:
        item = _item(kind, field, path)
        return write.Single(field.number, item, field.has_presence, field.is_required)
    if is_list(kind):
        item = _item(kind.value_type, field, f"{path}.element")
    elif pa.types.is_map(kind):
        item = _item(pa.struct([("key", kind.key_type), ("value", kind.item_type)]), field, path)
    else:
        raise _unfit(kind, field, path)
    return write.Repeated(field.number, item, field.is_packed)


def _map(kind: pa.DataType, field: FieldDescriptor, path: str) -> write.Field:
    if not pa.types.is_map(kind):
        raise _unfit(kind, field, path)
    entry = field.message_type
    assert entry is not None
    key = _item(kind.key_type, entry.fields_by_number[1], f"{path}.key")
    value = _item(kind.item_type, entry.fields_by_number[2], f"{path}.value")
    return write.MapField(field.number, key, value)


def _item(kind: pa.DataType, field: FieldDescriptor, path: str) -> write.Item:
    name = wire_name(field)
    found: write.Item | None = None
    if name == "message":
        found = _message(kind, field, path)
    elif name == "enum":
        found = _enum(kind, field)
    elif name in _FLOATS:
        found = _floats(kind, name)
    elif name in _SIGNED or name in _UNSIGNED:
        found = _integers(kind, name)
    elif name == "bool" and pa.types.is_boolean(kind):
        found = write.Number(lambda array: _numpy(array).astype(np.uint64))
    elif (name in ("string", "bytes") and is_string(kind)) or (name == "bytes" and is_binary(kind)):
        found = write.Text(lambda array: array)
    elif name == "string" and pa.types.is_decimal(kind):
        found = write.Text(lambda array: array.cast(pa.large_string()))
    if found is None:
        raise _unfit(kind, field, path)
    return found


def _message(kind: pa.DataType, field: FieldDescriptor, path: str) -> write.Item | None:
    message = field.message_type
    assert message is not None
    if pa.types.is_struct(kind):
        return message_plan(list(kind), message, path)
    parts = pa.schema([("seconds", pa.int64()), ("nanos", pa.int32())])
    if message.full_name == "google.protobuf.Timestamp" and pa.types.is_timestamp(kind):
        return write.Boxed(message_plan(list(parts), message, path), write.moments)
    if message.full_name == "google.protobuf.Duration" and pa.types.is_duration(kind):
        return write.Boxed(message_plan(list(parts), message, path), write.spans)
    if message.full_name in WRAPPERS:
        return _boxed("value", kind, message, path)
    if (is_list(kind) or pa.types.is_map(kind)) and "items" in message.fields_by_name:
        return _boxed("items", kind, message, path)
    return None


def _boxed(name: str, kind: pa.DataType, message: Descriptor, path: str) -> write.Item:
    inner = _field(kind, message.fields_by_name[name], path)
    return write.Boxed(write.Message(((name, 0, inner),)), lambda array: [array])


def _enum(kind: pa.DataType, field: FieldDescriptor) -> write.Item | None:
    if not is_string(kind):
        return None
    enum = field.enum_type
    assert enum is not None
    values = list(enum.values)
    names, numbers = [each.name for each in values], [each.number for each in values]
    return write.Number(write.names_to_numbers(names, numbers))


def _floats(kind: pa.DataType, name: str) -> write.Item | None:
    form, width, bits = _FLOATS[name]
    if pa.types.is_floating(kind):
        fits = kind.bit_width <= width
    else:
        fits = pa.types.is_integer(kind) and _bits(kind) <= bits
    return write.Plain(form, _numpy) if fits else None


def _integers(kind: pa.DataType, name: str) -> write.Item | None:
    count = _count(kind, name)
    if count is None:
        return None
    if name in _FIXED:
        return write.Plain(_FIXED[name], count)
    if name.startswith("sint"):
        return write.Number(lambda array: zigzag(count(array).astype(np.int64)))
    # Protobuf sign-extends a negative number to 64 bits, even if the type has 32.
    widest = np.uint64 if name in _UNSIGNED else np.int64
    return write.Number(lambda array: count(array).astype(widest).view(np.uint64))


def _count(kind: pa.DataType, name: str) -> Callable[[pa.Array], Numbers] | None:
    """The conversion of a column to integers; None if the type does not hold all values."""
    types = pa.types
    if types.is_integer(kind):
        if name in _UNSIGNED:
            fits = types.is_unsigned_integer(kind) and kind.bit_width <= _UNSIGNED[name]
        else:
            fits = _bits(kind) <= _SIGNED[name]
        return _numpy if fits else None
    if types.is_date(kind) and name in _SIGNED:
        return lambda array: _numpy(array.cast(pa.date32()).cast(pa.int32()))
    if (types.is_time(kind) or types.is_duration(kind)) and _SIGNED.get(name) == 64:
        return _micros
    return None


def _micros(array: pa.Array) -> Int64s:
    return counted(array, "us")


def _numpy(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _bits(kind: pa.DataType) -> int:
    return int(kind.bit_width) + bool(pa.types.is_unsigned_integer(kind))


def _unfit(kind: pa.DataType, field: FieldDescriptor, path: str) -> Unwritable:
    return Unwritable(
        f"column `{path}` is of type {kind}, which the schema's {type_name(field)} cannot hold"
        " without loss; cast it in the view, or change the schema"
    )

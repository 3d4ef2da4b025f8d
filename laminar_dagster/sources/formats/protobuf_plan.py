"""Compiles a Protobuf message type and the declared columns into readers, once for each schema.

Declared columns are matched by the field's name. Undeclared fields are skipped, columns that the
message type lacks are null. An absent field without presence has its default: 0, false or empty.
An absent field with presence, such as an ``optional`` or a member of a ``oneof``, is null. The
supported conversions:

- integers: any integer, if the value fits; FLOAT, DOUBLE, DECIMAL
- float: FLOAT, DOUBLE; double: DOUBLE; bool: BOOLEAN
- string and bytes: STRING, BINARY
- enums: STRING, the name, or the number where it has none; any integer, the number
- messages: STRUCT; repeated: ARRAY; map: MAP
- google.protobuf.Timestamp: TIMESTAMP; Duration: BIGINT, microseconds; StringValue and the other
  wrappers: as their value, null where the wrapper is absent

If a field occurs more than once, the last one counts. Messages would have to be merged, which no
writer relies on: a record is bad if a message field that is not repeated occurs twice, or a key of
a map does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.encoding.protobuf_schema import WRAPPERS, is_map, type_name, wire_name
from laminar_dagster.sources.formats import protobuf_read as read
from laminar_dagster.sources.formats.avro_plan import Incompatible
from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes, UInt64s
from laminar_dagster.sources.formats.binary.numeric import (
    FromInts,
    floats_of,
    integers_of,
    unsigned_decimals_of,
    whole_decimals_of,
)
from laminar_dagster.sources.formats.binary.varints import zigzag
from laminar_dagster.sources.formats.protobuf_scan import EIGHT_BYTES, FOUR_BYTES, PREFIXED, VARINT

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_EIGHT: Final = frozenset({"double", "fixed64", "sfixed64"})
_FOUR: Final = frozenset({"float", "fixed32", "sfixed32"})
_UNSIGNED: Final = frozenset({"uint64", "fixed64"})
_LARGEST: Final = np.uint64(2**63 - 1)


def message_plan(message: Descriptor, schema: pa.Schema) -> read.Message:
    """The reader of messages of a type into the declared columns.

    Raises:
        Incompatible: A field cannot be converted to its declared type.
    """
    return _message(message, list(schema), "")


def _message(message: Descriptor, kinds: list[pa.Field], path: str) -> read.Message:
    fields = [_field(message.fields_by_name.get(each.name), each.type, path) for each in kinds]
    return read.Message(fields, [each.type for each in kinds])


def _field(field: FieldDescriptor | None, kind: pa.DataType, path: str) -> read.Field | None:
    if field is None:
        return None
    path = f"{path}.{field.name}" if path else field.name
    if is_map(field):
        return _map(field, kind, path)
    if field.is_repeated:
        if not pa.types.is_list(kind):
            raise _incompatible(field, kind, path)
        return read.Repeated(field.number, _item(field, kind.value_type, path), kind)
    item = _item(field, kind, path)
    oneof = field.containing_oneof
    members = oneof.fields if oneof is not None else ()
    rivals = [each.number << 3 | _wire(each) for each in members if each.number != field.number]
    return read.Single(field.number, item, not field.has_presence, rivals)


def _map(field: FieldDescriptor, kind: pa.DataType, path: str) -> read.Field:
    if not pa.types.is_map(kind):
        raise _incompatible(field, kind, path)
    entry = field.message_type
    assert entry is not None
    key, value = entry.fields_by_number[1], entry.fields_by_number[2]
    pair = [kind.key_type, kind.item_type]
    what = f"`{path}`"
    # A key or value that an entry lacks has its default, even if it is a message.
    message = read.Message(
        [
            read.Single(1, _item(key, pair[0], f"{path}.key"), True),
            read.Single(2, _strict(_item(value, pair[1], f"{path}.value")), True),
        ],
        pair,
        f"an entry of {what} is more than a key and a value",
    )
    entries = read.Repeated(field.number, read.Text(what, pa.binary()), kind)
    return read.MapField(entries, message, kind)


def _strict(item: read.Item) -> read.Item:
    """Refuse records with an unknown number of a closed enum in a map's value."""
    if not isinstance(item, read.Number) or item.known is None:
        return item
    known, convert, what = item.known, item.convert, item.what

    def checked(bits: UInt64s, lanes: Lanes) -> pa.Array:
        numbers = bits.astype(np.uint32).view(np.int32)
        odd = np.flatnonzero(~np.isin(numbers, known))
        lanes.refuse(odd, f"{what} is a number that its enum does not have")
        return convert(bits, lanes)

    return replace(item, convert=checked, known=None)


def _item(field: FieldDescriptor, kind: pa.DataType, path: str) -> read.Item:
    what = f"`{path}`"
    name = wire_name(field)
    found: read.Item | None = None
    if name == "message":
        found = _inner(field, kind, path, what)
    elif name in ("string", "bytes"):
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            found = read.Text(what, kind)
    elif name != "group":
        convert = _from_bits(name, field.enum_type, kind, what)
        known = None
        if field.enum_type is not None and field.enum_type.is_closed:
            known = np.array(sorted(field.enum_type.values_by_number), np.int64)
        if convert:
            found = read.Number(what, _wire(field), kind, convert, known)
    if found is None:
        raise _incompatible(field, kind, path)
    return found


def _inner(field: FieldDescriptor, kind: pa.DataType, path: str, what: str) -> read.Item | None:
    message = field.message_type
    assert message is not None
    if pa.types.is_struct(kind):
        return read.Nested(what, kind, _message(message, list(kind), path))
    if message.full_name in WRAPPERS:
        value = _item(message.fields_by_name["value"], kind, path)
        return read.Wrapped(what, kind, read.Message([read.Single(1, value, True)], [kind]))
    is_time = message.full_name == "google.protobuf.Timestamp" and pa.types.is_timestamp(kind)
    is_span = message.full_name == "google.protobuf.Duration" and pa.types.is_int64(kind)
    if is_time or is_span:
        parts = pa.schema([("seconds", pa.int64()), ("nanos", pa.int64())])
        return read.Moment(what, kind, _message(message, list(parts), path))
    return None


def _wire(field: FieldDescriptor) -> int:
    name = wire_name(field)
    if name in ("string", "bytes", "message"):
        return PREFIXED
    if name in _EIGHT:
        return EIGHT_BYTES
    return FOUR_BYTES if name in _FOUR else VARINT


def _from_bits(
    name: str, enum: EnumDescriptor | None, kind: pa.DataType, what: str
) -> read.FromBits | None:
    if name == "bool":
        return (lambda bits, lanes: pa.array(bits != 0)) if pa.types.is_boolean(kind) else None
    if name == "double":
        plain = pa.types.is_float64(kind)
        return (lambda bits, lanes: pa.array(bits.view(np.float64))) if plain else None
    if name == "float":
        return _floats(kind) if pa.types.is_floating(kind) else None
    if enum is not None and pa.types.is_string(kind):
        return _names(enum)
    if name in _UNSIGNED and pa.types.is_decimal(kind):
        return unsigned_decimals_of(kind, what)
    convert: FromInts
    if pa.types.is_integer(kind):
        convert = integers_of(kind, what)
    elif pa.types.is_floating(kind) and enum is None:
        if name in _UNSIGNED:
            return lambda bits, lanes: pa.array(bits.astype(kind.to_pandas_dtype()))
        convert = floats_of(kind)
    elif pa.types.is_decimal(kind) and enum is None:
        convert = whole_decimals_of(kind, what)
    else:
        return None
    if name in _UNSIGNED:
        return _unsigned(convert, kind, what)
    return lambda bits, lanes: convert(_signed(name, bits), lanes)


def _signed(name: str, bits: UInt64s) -> Int64s:
    if name in ("int64", "sfixed64"):
        return bits.view(np.int64)
    if name == "sint64":
        return zigzag(bits)
    low = bits.astype(np.uint32)
    if name in ("uint32", "fixed32"):
        return low.astype(np.int64)
    if name == "sint32":
        return zigzag(low.astype(np.uint64))
    return low.view(np.int32).astype(np.int64)


def _unsigned(convert: FromInts, kind: pa.DataType, what: str) -> read.FromBits:
    def fitting(bits: UInt64s, lanes: Lanes) -> pa.Array:
        odd = bits > _LARGEST
        if odd.any():
            lanes.refuse(np.flatnonzero(odd), f"{what} does not fit in {kind}")
            bits = np.where(odd, np.uint64(0), bits)
        return convert(bits.view(np.int64), lanes)

    return fitting


def _floats(kind: pa.DataType) -> read.FromBits:
    def convert(bits: UInt64s, lanes: Lanes) -> pa.Array:
        with np.errstate(invalid="ignore"):
            values = bits.astype(np.uint32).view(np.float32)
            return pa.array(values.astype(kind.to_pandas_dtype(), copy=False))

    return convert


def _names(enum: EnumDescriptor) -> read.FromBits:
    numbers = np.array(sorted(enum.values_by_number), np.int64)
    names = [enum.values_by_number[each].name for each in numbers.tolist()]

    def convert(bits: UInt64s, lanes: Lanes) -> pa.Array:
        values = bits.astype(np.uint32).view(np.int32).astype(np.int64)
        places = np.minimum(np.searchsorted(numbers, values), len(numbers) - 1)
        other = np.flatnonzero(numbers[places] != values)
        spelt = pa.array(names, pa.string())
        if len(other):
            unknown, which = np.unique(values[other], return_inverse=True)
            places[other] = len(names) + which
            spelt = pa.array([*names, *map(str, unknown.tolist())], pa.string())
        return spelt.take(pa.array(places))

    return convert


def _incompatible(field: FieldDescriptor, kind: pa.DataType, path: str) -> Incompatible:
    return Incompatible(f"`{path}`: {type_name(field)} cannot become {kind}")

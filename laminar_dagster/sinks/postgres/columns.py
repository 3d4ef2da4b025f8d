"""Map the columns of a view to PostgreSQL columns.

| Arrow | the column created for it | other columns accepted for it |
|---|---|---|
| int8, uint8, int16 | smallint | integer, bigint, numeric, real, double precision |
| uint16, int32 | integer | bigint, numeric, double precision (uint16: real too) |
| uint32, int64 | bigint | numeric (uint32: double precision too) |
| uint64 | numeric(20,0) | |
| float16, float32 | real | double precision |
| float64 | double precision | |
| decimal | numeric(p,s) | numeric of at least its digits on both sides of the point |
| bool | boolean | |
| string | text | varchar, char of its very length, json, jsonb, uuid, enums, citext |
| binary | bytea | uuid, if it is 16 bytes |
| date | date | |
| timestamp with a zone | timestamp with time zone | |
| timestamp without | timestamp | |
| time | time | |
| duration | interval | |
| list, struct, map | jsonb | json, text, varchar; see ``sinks.documents`` |

A column is accepted only for types whose every value it holds unchanged. Values that the server
would silently round, pad or truncate are refused. Nanoseconds must be whole microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.sinks.arrow_values import is_binary, is_string
from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.documents import check_json, documents
from laminar_dagster.sinks.numbers import numbers, of_length
from laminar_dagster.sinks.pieces import Piece
from laminar_dagster.sinks.postgres import values
from laminar_dagster.sinks.postgres.numeric import decimal_pieces, whole_number_pieces
from laminar_dagster.sinks.postgres.wire import fixed, prefixed, rows_of, varying

Encode = Callable[[pa.Array], tuple[Piece, ...]]

_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "citext", "json", "jsonb", "enum"})
_BITS: Final = {"int2": 16, "int4": 32, "int8": 64, "float4": 25, "float8": 54}
_WIRE: Final = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
_PRECISION: Final = {"s": 0, "ms": 3, "us": 6, "ns": 6}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a table's column; for a domain, its base type.

    Attributes:
        name: The catalogue's name: ``int4``. ``enum`` stands for any enum type.
        modifier: Its ``atttypmod``: length or precision, -1 for none.
        shown: The SQL of the type, for messages.
    """

    name: str
    modifier: int
    shown: str


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column of the view, and the table's column that it is written to."""

    name: str
    target: str
    type: ColumnType
    encode: Encode


def type_for(field: pa.Field) -> ColumnType:
    """The type that a new column gets.

    Raises:
        Unwritable: PostgreSQL has no type for the column.
    """
    types, kind = pa.types, _plain(field.type)
    simple = {
        **dict.fromkeys((pa.int8(), pa.uint8(), pa.int16()), ("int2", "smallint")),
        **dict.fromkeys((pa.uint16(), pa.int32()), ("int4", "integer")),
        **dict.fromkeys((pa.uint32(), pa.int64()), ("int8", "bigint")),
        **dict.fromkeys((pa.float16(), pa.float32()), ("float4", "real")),
        pa.float64(): ("float8", "double precision"),
        pa.bool_(): ("bool", "boolean"),
    }
    if kind in simple:
        name, shown = simple[kind]
        return ColumnType(name, -1, shown)
    if kind == pa.uint64():
        return _numeric(20, 0)
    if types.is_decimal(kind):
        return _numeric(max(kind.precision - min(kind.scale, 0), kind.scale), max(kind.scale, 0))
    if types.is_timestamp(kind):
        zoned = ColumnType("timestamptz", -1, "timestamp with time zone")
        return zoned if kind.tz is not None else ColumnType("timestamp", -1, "timestamp")
    for matches, name in (
        (is_string, "text"),
        (is_binary, "bytea"),
        (types.is_date, "date"),
        (types.is_time, "time"),
        (types.is_duration, "interval"),
        (types.is_nested, "jsonb"),
    ):
        if matches(kind):
            return ColumnType(name, -1, name)
    raise Unwritable(
        f"column `{field.name}` is of type {field.type}, which PostgreSQL cannot hold;"
        " cast it in the view"
    )


def encoder_for(field: pa.Field, target: ColumnType) -> Encode | None:
    """The encoder from a view's column to a table's column; None if its values do not fit.

    Raises:
        Unwritable: PostgreSQL has no type for the view's column at all.
    """
    kind = field.type
    if pa.types.is_dictionary(kind):
        inner = encoder_for(field.with_type(kind.value_type), target)
        return inner and (lambda array: inner(array.cast(kind.value_type)))
    type_for(field)
    if pa.types.is_nested(kind):
        return _nested(field, target)
    if pa.types.is_integer(kind):
        return _integers(kind, target)
    if pa.types.is_floating(kind):
        return _floats(kind, target)
    if pa.types.is_decimal(kind):
        digits = kind.precision - kind.scale
        return decimal_pieces if _holds_digits(target, digits, max(kind.scale, 0)) else None
    if pa.types.is_boolean(kind):
        return values.booleans if target.name == "bool" else None
    if is_string(kind):
        return _strings(target)
    if is_binary(kind):
        return _bytes(kind, target)
    return _times(kind, target)


def folds_texts(kind: ColumnType) -> bool:
    """Whether a type treats different texts as equal, whatever its collation.

    Not char(n): its texts must have exactly n characters, so padding makes no difference.
    """
    # Equal are `{"a":1}` and `{"a": 1}` (jsonb), 'A' and 'a' (citext), 'a' and 'a ' (bpchar).
    is_unlimited = kind.name == "bpchar" and kind.modifier == -1
    return kind.name in ("jsonb", "citext") or is_unlimited


def in_one_spelling(encode: Encode) -> Encode:
    """Wrap the encoder of a UUID key: refuse texts in other spellings than the canonical one."""

    def encode_key(array: pa.Array) -> tuple[Piece, ...]:
        pieces = encode(array)
        kind = _plain(array.type)
        if is_string(kind):
            values.refuse_other_spellings(array.cast(kind))
        return pieces

    return encode_key


def encode(
    columns: Sequence[PostgresColumn], batch: pa.RecordBatch, key: tuple[str, ...]
) -> pa.Buffer:
    """The rows of a batch in the binary form of COPY.

    Raises:
        Unwritable: A value does not fit; with a sample of the bad rows.
    """
    pieces = []
    for column in columns:
        with blamed_on(batch, column.name, key):
            pieces.append(column.encode(batch.column(column.name)))
    return rows_of(batch.num_rows, pieces)


def _plain(kind: pa.DataType) -> pa.DataType:
    return _plain(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _numeric(precision: int, scale: int) -> ColumnType:
    modifier = ((precision << 16) | scale) + 4
    return ColumnType("numeric", modifier, f"numeric({precision},{scale})")


def _holds_digits(target: ColumnType, before: int, after: int) -> bool:
    """Whether a numeric column holds these numbers of digits before and after the point."""
    if target.name != "numeric":
        return False
    if target.modifier == -1:
        return True
    precision = ((target.modifier - 4) >> 16) & 0xFFFF
    # The scale is an 11-bit signed number: it may be negative.
    scale = (((target.modifier - 4) & 0x7FF) ^ 1024) - 1024
    return after <= scale and before <= precision - scale


def _integers(kind: pa.DataType, target: ColumnType) -> Encode | None:
    is_unsigned = pa.types.is_unsigned_integer(kind)
    if target.name in _BITS:
        form = _WIRE[target.name]
        if kind.bit_width + is_unsigned > _BITS[target.name]:
            return None
        return lambda array: fixed(array, (form, numbers(array)))
    digits = len(str(2 ** (kind.bit_width - (not is_unsigned))))
    if not _holds_digits(target, digits, 0):
        return None
    return lambda array: whole_number_pieces(array, numbers(array), digits)


def _floats(kind: pa.DataType, target: ColumnType) -> Encode | None:
    if target.name != "float8" and (target.name != "float4" or kind == pa.float64()):
        return None
    form = _WIRE[target.name]
    return lambda array: fixed(array, (form, numbers(array)))


def _strings(target: ColumnType) -> Encode | None:
    if target.name == "uuid":
        return values.uuids
    if target.name not in _TEXTS:
        return None
    if target.name == "jsonb":
        return _jsonb
    if target.name in ("varchar", "bpchar") and target.modifier != -1:
        length = target.modifier - 4
        exactly = target.name == "bpchar"
        return lambda array: varying(of_length(values.texts(array), length, exactly=exactly))
    return lambda array: varying(values.texts(array))


def _bytes(kind: pa.DataType, target: ColumnType) -> Encode | None:
    if target.name == "bytea":
        return varying
    is_uuid = target.name == "uuid" and kind == pa.binary(16)
    return varying if is_uuid else None


def _times(kind: pa.DataType, target: ColumnType) -> Encode | None:
    types = pa.types
    if types.is_date(kind):
        return values.dates if target.name == "date" else None
    if types.is_duration(kind):
        # With a modifier, an interval drops fields or rounds.
        is_whole = target.name == "interval" and target.modifier == -1
        return values.intervals if is_whole else None
    name = "time"
    if types.is_timestamp(kind):
        name = "timestamp" if kind.tz is None else "timestamptz"
    rounds = target.modifier != -1 and target.modifier < _PRECISION[kind.unit]
    if target.name != name or rounds:
        return None
    return values.times if name == "time" else values.timestamps


def _nested(field: pa.Field, target: ColumnType) -> Encode | None:
    check_json(field.name, field.type)
    if target.name not in ("jsonb", "json", "text", "varchar"):
        return None
    inner = _strings(target)
    return inner and (lambda array: inner(documents(array)))


def _jsonb(array: pa.Array) -> tuple[Piece, ...]:
    # The prefix is the version of jsonb's binary format; 1 is the only one.
    return varying(prefixed(b"\x01", values.json_texts(array)))

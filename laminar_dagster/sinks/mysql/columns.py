"""Map the columns of a view to MySQL columns.

| Arrow | the column created for it | other columns accepted for it |
|---|---|---|
| int8, int16, int32, int64 | tinyint, smallint, int, bigint | wider ones, decimal, double, float |
| uint8, uint16, uint32, uint64 | the same, unsigned | wider ones, decimal, double, float |
| float16, float32 | double | float |
| float64 | double | |
| decimal | decimal(p,s) | decimal of at least its digits on both sides of the point |
| bool | tinyint(1) | any whole number |
| string | longtext; in a key varchar | varchar, char, text of any size, json |
| binary | longblob; in a key varbinary | varbinary, binary of its very length, blob of any size |
| date | date | |
| timestamp with a zone | datetime(6), in UTC | timestamp |
| timestamp without | datetime(6) | |
| time | time(6) | |
| duration | bigint, of its unit | decimal |
| list, struct, map | json | text, varchar; see ``sinks.documents`` |

A column is accepted only for types whose every value it holds unchanged. Values that the server
would silently round, pad or truncate are refused. Strings need columns of ``utf8mb4``. Nanoseconds
are accepted if they are whole microseconds. MySQL has neither NaN nor infinities. A ``float``
stores values exactly, but the server displays six digits, so none is created.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.sinks.arrow_values import is_binary, is_string
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.documents import check_json, documents
from laminar_dagster.sinks.mysql import values
from laminar_dagster.sinks.mysql.texts import Encode, Form

_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_MADE_BITS: Final = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
# The bits of integers that are represented exactly.
_MANTISSA: Final = {"float": 24, "double": 53}
_TEXTS: Final = frozenset({"tinytext", "text", "mediumtext", "longtext"})
_BLOBS: Final = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_PRECISION: Final = {"s": 0, "ms": 3, "us": 6, "ns": 6}
_MOST_DIGITS: Final = 65
_MOST_DECIMALS: Final = 30


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a table's column.

    Attributes:
        name: The catalogue's name of the type: ``bigint``.
        shown: The SQL of the type: ``bigint(20) unsigned``.
        length: The maximum length in characters.
        octets: The maximum length in bytes.
        fraction: The digits of fractional seconds.
    """

    name: str
    shown: str
    is_unsigned: bool = False
    is_nullable: bool = True
    length: int | None = None
    octets: int | None = None
    precision: int | None = None
    scale: int | None = None
    fraction: int | None = None
    charset: str | None = None
    collation: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is a string type, compared by a collation."""
        return self.name in ("varchar", "char") or self.name in _TEXTS


@dataclass(frozen=True, slots=True)
class MysqlColumn:
    """A column of the view, and the table's column that it is written to.

    Attributes:
        encode: Converts its values to texts or bytes; nulls stay null.
        form: How these are quoted or escaped in a statement or a stream.
    """

    name: str
    target: str
    type: ColumnType
    encode: Encode
    form: Form


def type_for(field: pa.Field, key_length: int | None = None) -> ColumnType:
    """The type that a new column gets.

    Args:
        field: A column of the view.
        key_length: The maximum characters, or bytes, of a key column; None if it is no key column.

    Raises:
        Unwritable: MySQL has no type for the column.
    """
    types, kind = pa.types, _plain(field.type)
    if types.is_boolean(kind):
        return ColumnType("tinyint", "tinyint(1)")
    if types.is_integer(kind):
        name = _MADE_BITS[kind.bit_width]
        unsigned = types.is_unsigned_integer(kind)
        return ColumnType(name, f"{name} unsigned" if unsigned else name, is_unsigned=unsigned)
    if types.is_floating(kind):
        return ColumnType("double", "double")
    if types.is_duration(kind):
        return ColumnType("bigint", "bigint")
    if types.is_decimal(kind):
        return _decimal(field.name, kind)
    if types.is_timestamp(kind):
        return ColumnType("datetime", "datetime(6)", fraction=6)
    if types.is_time(kind):
        return ColumnType("time", "time(6)", fraction=6)
    if types.is_date(kind):
        return ColumnType("date", "date")
    if types.is_nested(kind):
        return ColumnType("json", "json")
    if is_string(kind):
        if key_length is not None:
            shown = f"varchar({key_length})"
            return ColumnType("varchar", shown, length=key_length, charset="utf8mb4")
        return ColumnType("longtext", "longtext", charset="utf8mb4")
    if is_binary(kind):
        if key_length is not None:
            return ColumnType("varbinary", f"varbinary({key_length})", octets=key_length)
        return ColumnType("longblob", "longblob")
    raise Unwritable(
        f"column `{field.name}` is of type {field.type}, which MySQL cannot hold;"
        " cast it in the view"
    )


def encoder_for(field: pa.Field, target: ColumnType) -> tuple[Encode, Form] | None:
    """How a view's column is written to a table's column; None if its values do not fit.

    Raises:
        Unwritable: MySQL has no type for the view's column at all.
    """
    kind = _plain(field.type)
    type_for(field)
    found = _encoder(field.with_type(kind), target)
    if found is None:
        return None
    inner, form = found

    def encode(array: pa.Array) -> pa.Array:
        if not target.is_nullable:
            # The server would replace a null with the current time or the next AUTO_INCREMENT.
            values.refuse_nulls(array)
        return inner(array.cast(kind) if pa.types.is_dictionary(array.type) else array)

    return encode, form


def without_final_spaces(encode: Encode) -> Encode:
    """Wrap an encoder for a key column whose collation ignores trailing spaces: refuse them."""

    def encode_key(array: pa.Array) -> pa.Array:
        return values.refuse_final_spaces(
            encode(array), "end with a space, which the collation of the table does not see"
        )

    return encode_key


def _encoder(field: pa.Field, target: ColumnType) -> tuple[Encode, Form] | None:
    kind, plain = field.type, Form.PLAIN
    types = pa.types
    if types.is_nested(kind):
        return _nested(field, target)
    if is_string(kind):
        return _strings(target)
    if is_binary(kind):
        return _bytes(kind, target)
    encode: Encode | None
    if types.is_boolean(kind):
        encode = values.booleans if target.name in _BITS else None
    elif types.is_integer(kind):
        encode = values.as_text if _holds_integers(kind, target) else None
    elif types.is_duration(kind):
        encode = values.durations if _holds_integers(pa.int64(), target) else None
    elif types.is_floating(kind):
        holds = target.name == "double" or (target.name == "float" and kind != pa.float64())
        encode = values.floats if holds and target.scale is None else None
    elif types.is_decimal(kind):
        holds = _holds_digits(target, kind.precision - kind.scale, max(kind.scale, 0))
        encode = values.as_text if holds else None
    else:
        encode = _times(kind, target)
    return None if encode is None else (encode, plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    return _plain(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _decimal(name: str, kind: pa.DataType) -> ColumnType:
    scale = max(kind.scale, 0)
    precision = max(kind.precision - min(kind.scale, 0), scale)
    if precision > _MOST_DIGITS or scale > _MOST_DECIMALS:
        raise Unwritable(
            f"column `{name}` is of type {kind}, and MySQL keeps at most {_MOST_DIGITS} digits,"
            f" {_MOST_DECIMALS} of them after the point; cast it in the view"
        )
    shown = f"decimal({precision},{scale})"
    return ColumnType("decimal", shown, precision=precision, scale=scale)


def _holds_digits(target: ColumnType, before: int, after: int) -> bool:
    if target.name != "decimal" or target.precision is None or target.scale is None:
        return False
    return after <= target.scale and before <= target.precision - target.scale


def _holds_integers(kind: pa.DataType, target: ColumnType) -> bool:
    is_unsigned = pa.types.is_unsigned_integer(kind)
    bits: int = kind.bit_width - (not is_unsigned)
    if target.name in _BITS:
        if target.is_unsigned and not is_unsigned:
            return False
        return bits <= _BITS[target.name] - (not target.is_unsigned)
    if target.is_unsigned and not is_unsigned:
        return False
    if target.name in _MANTISSA:
        return target.scale is None and bits <= _MANTISSA[target.name]
    return _holds_digits(target, len(str(2**bits)), 0)


def _strings(target: ColumnType) -> tuple[Encode, Form] | None:
    if target.name == "json":
        return values.as_text, Form.TEXT
    if not target.is_text or target.charset != "utf8mb4":
        return None
    return _limited(target), Form.TEXT


def _limited(target: ColumnType) -> Encode:
    length, octets = target.length, target.octets
    if target.name == "char":
        assert length is not None, "a char has a length"
        return lambda array: values.refuse_final_spaces(
            values.of_length(array, length), "end with a space, which a `char` does not keep"
        )
    if target.name == "varchar":
        assert length is not None, "a varchar has a length"
        return lambda array: values.of_length(array, length)
    return lambda array: values.of_size(values.as_text(array), octets)


def _bytes(kind: pa.DataType, target: ColumnType) -> tuple[Encode, Form] | None:
    octets = target.octets
    if target.name == "binary":
        if not pa.types.is_fixed_size_binary(kind) or kind.byte_width != octets:
            # A `binary` column pads shorter values with zeros.
            return None
    elif target.name != "varbinary" and target.name not in _BLOBS:
        return None
    return (lambda array: values.of_size(array.cast(pa.binary()), octets)), Form.BYTES


def _times(kind: pa.DataType, target: ColumnType) -> Encode | None:
    types = pa.types
    if types.is_date(kind):
        return values.dates if target.name == "date" else None
    if (target.fraction or 0) < _PRECISION[kind.unit]:
        return None
    if types.is_time(kind):
        return values.times if target.name == "time" else None
    if target.name == "timestamp" and kind.tz is not None:
        return values.moments
    return values.datetimes if target.name == "datetime" else None


def _nested(field: pa.Field, target: ColumnType) -> tuple[Encode, Form] | None:
    check_json(field.name, field.type)
    found = _strings(target) if target.name != "char" else None
    if found is None:
        return None
    inner = found[0]
    return (
        lambda array: inner(documents(array)),
        found[1],
    )

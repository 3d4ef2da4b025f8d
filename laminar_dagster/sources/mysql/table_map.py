"""Parses the event that describes a table (TABLE_MAP), which precedes its row events.

With ``binlog_row_metadata = FULL`` it describes the columns completely: so changes are read with
the table's columns at the time they were written, whatever they are now.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from laminar_dagster.sources.mysql.charsets import decoded
from laminar_dagster.sources.mysql.column_types import YEAR, MysqlType

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _LONGLONG, _INT24 = 1, 2, 3, 4, 5, 8, 9
_DATE, _YEAR, _VARCHAR, _BIT = 10, 13, 15, 16
_TIMESTAMP, _DATETIME, _TIME = 17, 18, 19
_JSON, _DECIMAL, _ENUM, _SET = 245, 246, 247, 248
_BLOB, _VAR_STRING, _STRING, _GEOMETRY = 252, 253, 254, 255

_BITS: Final = {_TINY: 8, _SHORT: 16, _INT24: 24, _LONG: 32, _LONGLONG: 64}
_NUMERIC: Final = frozenset({*_BITS, _DECIMAL, _FLOAT, _DOUBLE, _YEAR})
_METADATA_BYTES: Final = {
    **dict.fromkeys((_FLOAT, _DOUBLE, _TIMESTAMP, _DATETIME, _TIME, _JSON, _BLOB, _GEOMETRY), 1),
    **dict.fromkeys((_VARCHAR, _BIT, _DECIMAL, _VAR_STRING, _STRING, _ENUM, _SET), 2),
}
# Formats of tables created before MySQL had fractional seconds, and MariaDB's compressed columns.
_REFUSED: Final = {
    7: "a timestamp of an old format: ALTER TABLE … FORCE",
    11: "a time of an old format: ALTER TABLE … FORCE",
    12: "a datetime of an old format: ALTER TABLE … FORCE",
    14: "a date of an old format: ALTER TABLE … FORCE",
    140: "a compressed column",
    141: "a compressed column",
    _GEOMETRY: "a geometry",
}
# The bytes that this many digits of a decimal take, beside whole groups of nine.
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_LONGEST_PREFIX: Final = 4
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_LABEL_DEFAULT_CHARSET, _LABEL_CHARSETS = 10, 11
_NO_NAMES: Final = (
    "the log does not name the columns of {}.{}; SET GLOBAL binlog_row_metadata = 'FULL', which"
    " holds for what is written after it"
)


class UnreadableTable(ValueError):
    """A description that lacks required metadata, or has a type that cannot be read."""


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column as row events encode it.

    Attributes:
        type: The column's type; None where it cannot be read.
        problem: Why it cannot be read.
        size: The bytes of a value, if that is always the same.
        prefix: Else the size of the length that precedes a value.
    """

    name: str
    type: MysqlType | None
    problem: str
    size: int
    prefix: int


@dataclass(frozen=True, slots=True, eq=False)
class LoggedTable:
    """A table as it was when its changes were written. Compared by identity."""

    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]

    def column(self, name: str) -> int | None:
        """The place of a column, whose name is case-insensitive as on the server."""
        wanted = name.casefold()
        found = (at for at, each in enumerate(self.columns) if each.name.casefold() == wanted)
        return next(found, None)


def table_id_of(body: bytes) -> int:
    """The table id in a description, or in a row event that refers to one."""
    return int.from_bytes(body[:6], "little")


def table_name_of(body: bytes) -> tuple[str, str]:
    """The database and the name of the table alone, which are cheap to parse."""
    size = body[8]
    schema = body[9 : 9 + size]
    at = 10 + size
    return schema.decode(), body[at + 1 : at + 1 + body[at]].decode()


def read_table(body: bytes, charsets: Mapping[int, str], *, is_mariadb: bool) -> LoggedTable:
    """Parse a description.

    Args:
        body: The body of the event.
        charsets: The character set of each collation.
        is_mariadb: Whether MariaDB wrote it.

    Raises:
        UnreadableTable: The columns have no names, or one has a type of unknown size.
    """
    schema, name = table_name_of(body)
    cursor = _Cursor(body, 8)
    for _ in range(2):
        cursor.take(cursor.take(1)[0] + 1)
    count = cursor.number()
    kinds = cursor.take(count)
    metadata = _Cursor(cursor.take(cursor.number()), 0)
    found = [_physical(kind, metadata) for kind in kinds]
    cursor.take((count + 7) // 8)
    fields = cursor.fields()
    if _NAMES not in fields:
        raise UnreadableTable(_NO_NAMES.format(schema, name))
    names = [each.decode() for each in _strings(fields[_NAMES])]
    kinds = bytes(each.kind for each in found)
    numeric = [at for at, kind in enumerate(kinds) if kind in _NUMERIC]
    unsigned = dict(zip(numeric, _bits(fields.get(_SIGNS, b"")), strict=False))
    texts = [at for at, kind in enumerate(kinds) if _is_text(kind, is_mariadb)]
    collations = _collations(texts, fields.get(_DEFAULT_CHARSET), fields.get(_CHARSETS))
    choices = [at for at, kind in enumerate(kinds) if kind in (_ENUM, _SET)]
    collations |= _collations(
        choices, fields.get(_LABEL_DEFAULT_CHARSET), fields.get(_LABEL_CHARSETS)
    )
    labels = _labels(kinds, fields)
    columns = []
    for at, each in enumerate(found):
        charset = charsets.get(collations[at], "") if at in collations else ""
        kind = each.type(unsigned.get(at, False), charset, labels.get(at, ()))
        problem = _REFUSED.get(each.kind, "") if kind is None else ""
        columns.append(LoggedColumn(names[at], kind, problem, each.size, each.prefix))
    return LoggedTable(schema, name, tuple(columns))


@dataclass(frozen=True, slots=True)
class _Physical:
    """A column's encoding in a row, with what the type code and its metadata tell of its type."""

    kind: int
    size: int = 0
    prefix: int = 0
    bits: int = 0
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    length: int = 0

    def type(self, is_unsigned: bool, charset: str, labels: tuple[bytes, ...]) -> MysqlType | None:
        kind = self.kind
        if kind in _BITS:
            return MysqlType("integer", bits=_BITS[kind], is_unsigned=is_unsigned)
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind == _DECIMAL:
            return MysqlType("decimal", precision=self.precision, scale=self.scale)
        if kind == _BIT:
            return MysqlType("bit", bits=self.bits)
        if kind in (_TIMESTAMP, _DATETIME, _TIME):
            family = {_TIMESTAMP: "timestamp", _DATETIME: "datetime", _TIME: "time"}[kind]
            return MysqlType(family, fraction=self.fraction)  # type: ignore[arg-type]
        if kind in (_ENUM, _SET):
            texts = tuple(decoded(each, charset or "utf8mb4") for each in labels)
            return MysqlType("enum" if kind == _ENUM else "set", labels=texts)
        if kind in (_VARCHAR, _VAR_STRING, _STRING, _BLOB):
            if charset == "binary":
                return MysqlType("bytes", fixed=self.length if kind == _STRING else 0)
            return MysqlType("text", charset=charset)
        return None


_SIMPLE: Final = {
    _FLOAT: MysqlType("float"),
    _DOUBLE: MysqlType("double"),
    _DATE: MysqlType("date"),
    _YEAR: MysqlType("integer", bits=YEAR, is_unsigned=True),
    _JSON: MysqlType("json"),
}


def _physical(kind: int, metadata: _Cursor) -> _Physical:
    meta = metadata.take(_METADATA_BYTES.get(kind, 0))
    if kind in _BITS:
        return _Physical(kind, size=_BITS[kind] // 8)
    match kind:
        case 1 | 13:
            return _Physical(kind, size=1)
        case 4 | 5:
            return _Physical(kind, size=4 if kind == _FLOAT else 8)
        case 10 | 14 | 11:
            return _Physical(kind, size=3)
        case 7:
            return _Physical(kind, size=4)
        case 12:
            return _Physical(kind, size=8)
        case 17 | 18 | 19:
            whole = {_TIMESTAMP: 4, _DATETIME: 5, _TIME: 3}[kind]
            return _Physical(kind, size=whole + (meta[0] + 1) // 2, fraction=meta[0])
        case 246:
            precision, scale = meta
            if scale > precision:
                raise UnreadableTable(f"the log holds a decimal({precision}, {scale})")
            return _Physical(kind, decimal_size(precision, scale), 0, 0, precision, scale)
        case 16:
            bits, whole = meta
            return _Physical(kind, size=whole + (bits > 0), bits=whole * 8 + bits)
        case 15 | 253:
            (length,) = struct.unpack("<H", meta)
            return _Physical(kind, prefix=1 if length < 256 else 2, length=length)
        case 245 | 252 | 255:
            if not 1 <= meta[0] <= _LONGEST_PREFIX:
                raise UnreadableTable(f"the log holds a column with {meta[0]} bytes of length")
            return _Physical(kind, prefix=meta[0])
        case 254:
            return _string(meta)
        case 247 | 248:
            return _Physical(kind, size=meta[1])
    raise UnreadableTable(f"the log holds a column of type {kind}, whose size is not known")


def _string(meta: bytes) -> _Physical:
    """Parse the metadata of an enum, a set or a char: kind and length share two bytes."""
    first, second = meta
    if first & 0x30 == 0x30:
        if first in (_ENUM, _SET):
            return _Physical(first, size=second)
        return _Physical(_STRING, prefix=1, length=second)
    length = second | (((first & 0x30) ^ 0x30) << 4)
    return _Physical(_STRING, prefix=1 if length < 256 else 2, length=length)


def decimal_size(precision: int, scale: int) -> int:
    """The size of a packed decimal."""
    sizes = [divmod(digits, 9) for digits in (precision - scale, scale)]
    return sum(4 * groups + _DIGIT_BYTES[rest] for groups, rest in sizes)


def _is_text(kind: int, is_mariadb: bool) -> bool:
    return kind in (_VARCHAR, _VAR_STRING, _STRING, _BLOB) or (kind == _GEOMETRY and is_mariadb)


def _collations(places: Sequence[int], default: bytes | None, each: bytes | None) -> dict[int, int]:
    """The collation of some columns: a default with exceptions, or one for each."""
    if each is not None:
        cursor = _Cursor(each, 0)
        return {at: cursor.number() for at in places}
    if default is None:
        return {}
    cursor = _Cursor(default, 0)
    found = dict.fromkeys(places, cursor.number())
    while not cursor.is_at_end:
        found[places[cursor.number()]] = cursor.number()
    return found


def _labels(kinds: bytes, fields: Mapping[int, bytes]) -> dict[int, tuple[bytes, ...]]:
    found: dict[int, tuple[bytes, ...]] = {}
    for kind, field in ((_SET, _SET_LABELS), (_ENUM, _ENUM_LABELS)):
        cursor = _Cursor(fields.get(field, b""), 0)
        for at in (at for at, each in enumerate(kinds) if each == kind):
            if not cursor.is_at_end:
                found[at] = tuple(cursor.take(cursor.number()) for _ in range(cursor.number()))
    return found


def _strings(data: bytes) -> list[bytes]:
    cursor = _Cursor(data, 0)
    found: list[bytes] = []
    while not cursor.is_at_end:
        found.append(cursor.take(cursor.number()))
    return found


def _bits(data: bytes) -> list[bool]:
    return [bool(byte >> shift & 1) for byte in data for shift in range(7, -1, -1)]


class _Cursor:
    """Reads the fields of one event in order."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise UnreadableTable("the description of a table is cut short")
        self._at += size
        return found

    def number(self) -> int:
        """Read a length-encoded integer."""
        first = self.take(1)[0]
        if first < 0xFB:
            return first
        size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        if size is None:
            raise UnreadableTable("the description of a table holds a number that is none")
        return int.from_bytes(self.take(size), "little")

    def fields(self) -> dict[int, bytes]:
        """Read the rest as fields: a tag, a length and a value each."""
        found: dict[int, bytes] = {}
        while not self.is_at_end:
            tag = self.take(1)[0]
            found[tag] = self.take(self.number())
        return found

"""Parses pgoutput messages in one buffer, column by column.

See https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. A tuple is
walked column by column, for all rows at once: every step of the walk is a few operations on whole
arrays. Values are located here, not decoded.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from laminar_dagster.sources.formats.binary.lanes import PADDING, Body, Int64s, Mask

BEGIN, COMMIT, RELATION = b"BCR"
INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
OLD_KEY, OLD_ROW, NEW_ROW = b"KON"
NULL, UNCHANGED, TEXT = b"nut"
_KINDS: Final = (BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE)
# BEGIN and COMMIT messages have a fixed size: a letter, positions, a time, and an id or flags.
_FRAME_SIZES: Final = {BEGIN: 1 + 8 + 8 + 4, COMMIT: 1 + 1 + 8 + 8 + 8}

# The header of COPY's binary format: a signature, flags, the length of an extension.
COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TRAILER: Final = b"\xff\xff"
# A row of two columns begins with the number of columns; each column begins with its length.
_ROW_HEAD: Final = struct.Struct(">hi")
_COLUMN_HEAD: Final = struct.Struct(">i")

Bytes = npt.NDArray[np.uint8]


class MalformedStream(ValueError):
    """The server sent a malformed message."""


class Wire(Body):
    """A body that can be read as big-endian numbers at any byte."""

    __slots__ = ("_int16", "_int32", "_int64")

    def __init__(self, data: bytes) -> None:
        """Copy the data between paddings, so that loads need no bounds check."""
        super().__init__(data)
        size = len(self.raw)
        self._int16 = np.ndarray((size - 1,), np.dtype(">i2"), self.raw.data, strides=(1,))
        self._int32 = np.ndarray((size - 3,), np.dtype(">i4"), self.raw.data, strides=(1,))
        self._int64 = np.ndarray((size - 7,), np.dtype(">i8"), self.raw.data, strides=(1,))

    def int16(self, at: Int64s) -> Int64s:
        """Numbers of two bytes."""
        return self._int16[at].astype(np.int64)

    def int32(self, at: Int64s) -> Int64s:
        """Numbers of four bytes."""
        return self._int32[at].astype(np.int64)

    def int64(self, at: Int64s) -> Int64s:
        """Numbers of eight bytes."""
        return self._int64[at].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages in stream order.

    Attributes:
        starts: Where each message begins in the padded body.
        ends: Where each message ends.
        kinds: The first byte of each message.
    """

    wire: Wire
    starts: Int64s
    ends: Int64s
    kinds: Bytes

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.starts)

    def bytes_of(self, place: int) -> bytes:
        """The bytes of one message."""
        return self.wire.raw[self.starts[place] : self.ends[place]].tobytes()


def messages_of(row: bytes) -> Messages:
    """Split a row of a binary COPY, lengths and then messages, into its messages.

    Raises:
        MalformedStream: The row is cut off or malformed, or a message is of a kind that was not
            asked for.
    """
    try:
        columns, size = _ROW_HEAD.unpack_from(row, 0)
        middle = _ROW_HEAD.size + max(size, 0)
        (length,) = _COLUMN_HEAD.unpack_from(row, middle)
    except struct.error:
        raise MalformedStream("a row of the COPY is cut off") from None
    first = middle + _COLUMN_HEAD.size
    sizes = np.frombuffer(row[_ROW_HEAD.size : middle], np.uint8)
    if columns != 2 or size % 4 or length != len(row) - first:
        raise MalformedStream("a row of the COPY does not hold lengths and messages")
    lengths = sizes.view(np.dtype(">i4")).astype(np.int64)
    ends = np.cumsum(lengths) + PADDING
    if (lengths < 1).any() or int(lengths.sum()) != length:
        raise MalformedStream("the lengths of messages do not add up")
    wire = Wire(row[first:])
    starts = ends - lengths
    kinds = wire.raw[starts]
    # Do not ignore unknown kinds: one might be a change.
    if not np.isin(kinds, _KINDS).all():
        raise MalformedStream("a message is of an unknown kind")
    for frame, expected in _FRAME_SIZES.items():
        if (lengths[kinds == frame] != expected).any():
            raise MalformedStream("the begin or commit of a transaction has another length")
    return Messages(wire, starts, ends, kinds)


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of many tuples: the kind of each value, and where its text stands."""

    kinds: Bytes
    starts: Int64s
    lengths: Int64s

    @property
    def is_text(self) -> Mask:
        """Which cells hold a value."""
        flags: Mask = self.kinds == TEXT
        return flags


def walk(
    messages: Messages, at: Int64s, columns: int, limits: Int64s
) -> tuple[list[Cells], Int64s]:
    """Walk tuples that begin at some places; return their columns, and where they end.

    Args:
        messages: The messages that hold the tuples.
        at: Where each tuple begins, with the number of its columns.
        columns: How many columns each tuple must have.
        limits: Where each tuple's message ends.

    Raises:
        MalformedStream: A tuple has another number of columns, or goes beyond its message.
    """
    wire = messages.wire
    if (wire.int16(at) != columns).any():
        raise MalformedStream("a tuple has another number of columns than its relation")
    at = at + 2
    cells: list[Cells] = []
    for _ in range(columns):
        # A tuple that overran its message is refused below; until then, stay inside the buffer.
        at = np.minimum(at, limits)
        kinds = wire.raw[at]
        is_text = kinds == TEXT
        if not (is_text | (kinds == NULL) | (kinds == UNCHANGED)).all():
            raise MalformedStream("a column of a tuple is neither null, nor unchanged, nor text")
        lengths = np.where(is_text, wire.int32(at + 1), 0)
        if (lengths < 0).any():
            raise MalformedStream("a column of a tuple has a negative length")
        cells.append(Cells(kinds, at + 5, lengths))
        at = at + np.where(is_text, 5 + lengths, 1)
    if (at > limits).any():
        raise MalformedStream("a tuple goes beyond its message")
    return cells, at


@dataclass(frozen=True, slots=True)
class Tuples:
    """The old and new rows that changes to one table carry.

    Attributes:
        markers: The letter before the first tuple of each change.
        has_before: Which changes have the old row, or its key.
        has_after: Which changes have the new row.
        before: The columns of the old rows or keys.
        after: The columns of the new rows.
    """

    markers: Bytes
    has_before: Mask
    has_after: Mask
    before: list[Cells]
    after: list[Cells]


def tuples_of(messages: Messages, places: Int64s, columns: int) -> Tuples:
    """Walk all tuples of changes.

    Args:
        messages: The messages that hold them.
        places: The places of the changes, all of one table.
        columns: How many columns the table has.

    Raises:
        MalformedStream: A change does not hold exactly the tuples that its kind has.
    """
    raw, kinds = messages.wire.raw, messages.kinds[places]
    at, limits = messages.starts[places] + 6, messages.ends[places]
    markers = raw[at - 1]
    is_old = (markers == OLD_KEY) | (markers == OLD_ROW)
    has_before = (kinds != INSERT) & is_old
    has_after = kinds != DELETE
    before, ends = walk(messages, at[has_before], columns, limits[has_before])
    at[has_before] = ends
    # The new row comes after the old one, behind a letter of its own.
    has_both = has_before & has_after
    letters = np.where(has_both, raw[at], markers)
    at[has_both] += 1
    if (has_after & (letters != NEW_ROW)).any() or not (has_before | has_after).all():
        raise MalformedStream("a change does not hold the tuples of its kind")
    after, ends = walk(messages, at[has_after], columns, limits[has_after])
    at[has_after] = ends
    if (at != limits).any():
        raise MalformedStream("a change goes on after its last tuple")
    return Tuples(markers, has_before, has_after, before, after)


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a table, as the stream describes it."""

    name: str
    type_oid: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table description, valid for the changes that follow it."""

    oid: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]

    @property
    def table(self) -> str:
        """Its name with its schema."""
        return f"{self.schema}.{self.name}"


def relation_of(message: bytes) -> Relation:
    """Parse a table description.

    Raises:
        MalformedStream: It is cut off, too long, or a name is not UTF-8.
    """
    cursor = _Cursor(message, 1)
    oid = cursor.number(4)
    schema, name = cursor.text(), cursor.text()
    cursor.number(1)
    columns = []
    for _ in range(cursor.number(2)):
        is_key = bool(cursor.number(1) & 1)
        column = cursor.text()
        columns.append(RelationColumn(column, cursor.number(4), is_key))
        cursor.number(4)
    cursor.require_end()
    return Relation(oid, schema or "pg_catalog", name, tuple(columns))


def truncated_of(message: bytes) -> tuple[int, ...]:
    """The ids of the tables that a TRUNCATE message names.

    Raises:
        MalformedStream: It is cut off or too long.
    """
    cursor = _Cursor(message, 1)
    count = cursor.number(4)
    cursor.number(1)
    oids = tuple(cursor.number(4) for _ in range(count))
    cursor.require_end()
    return oids


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def number(self, size: int) -> int:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise MalformedStream("a message is cut off")
        self._at += size
        return int.from_bytes(piece, "big")

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise MalformedStream("a name is cut off")
        piece = self._data[self._at : end]
        self._at = end + 1
        try:
            return piece.decode()
        except UnicodeDecodeError:
            raise MalformedStream("a name is not UTF-8") from None

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise MalformedStream("a message goes on after its end")

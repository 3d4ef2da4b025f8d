"""Messages of pgoutput, made by hand as the documentation of the protocol describes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from laminar_dagster.sources.postgres.messages import Messages, messages_of

UNCHANGED = object()
Cell = str | None | object


def begin(lsn: int, micros: int = 0, xid: int = 7) -> bytes:
    return b"B" + struct.pack(">qqi", lsn, micros, xid)


def commit(lsn: int, end: int, micros: int = 0) -> bytes:
    return b"C" + struct.pack(">bqqq", 0, lsn, end, micros)


def relation(
    oid: int, name: str, columns: Sequence[tuple[str, int]], keys: Sequence[str] = ()
) -> bytes:
    schema, table = name.split(".")
    told = b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + table.encode() + b"\0"
    told += b"d" + struct.pack(">h", len(columns))
    for column, kind in columns:
        told += bytes([column in keys]) + column.encode() + b"\0" + struct.pack(">Ii", kind, -1)
    return told


def cells(*values: Cell) -> bytes:
    told = struct.pack(">h", len(values))
    for value in values:
        if value is None:
            told += b"n"
        elif value is UNCHANGED:
            told += b"u"
        else:
            assert isinstance(value, str)
            data = value.encode()
            told += b"t" + struct.pack(">i", len(data)) + data
    return told


def insert(oid: int, *values: Cell) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + cells(*values)


def update(
    oid: int, new: Sequence[Cell], old: Sequence[Cell] | None = None, mark: bytes = b"O"
) -> bytes:
    before = b"" if old is None else mark + cells(*old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + cells(*new)


def delete(oid: int, old: Sequence[Cell], mark: bytes = b"O") -> bytes:
    return b"D" + struct.pack(">I", oid) + mark + cells(*old)


def truncate(*oids: int) -> bytes:
    return (
        b"T" + struct.pack(">ib", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids)
    )


def copied(*sent: bytes) -> bytes:
    """As a row of a binary COPY."""
    lengths = b"".join(struct.pack(">i", len(each)) for each in sent)
    data = b"".join(sent)
    return struct.pack(">hi", 2, len(lengths)) + lengths + struct.pack(">i", len(data)) + data


def stream(*sent: bytes) -> Messages:
    return messages_of(copied(*sent))

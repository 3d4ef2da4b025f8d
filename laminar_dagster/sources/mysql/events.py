"""The events of a binary log, one after the other, each with the place where it ends.

Every event that has a checksum is checked against it. A place in the log is a file and a byte in
it; the 32 bits that an event has for the byte are carried on beyond 4 GiB.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from laminar_dagster.clients.mysql.packets import Packets

HEADER: Final = 19
_HEADER: Final = struct.Struct("<IBIIIH")
_CHECKSUM: Final = 4
_CRC32: Final = 1
# Made up by the server for the reader, and in no file.
_ARTIFICIAL: Final = 0x20


class Kind(IntEnum):
    """What an event is about. MariaDB's own kinds are above 160."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT = 15
    XID = 16
    EXECUTE_LOAD = 18
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    INCIDENT = 26
    WRITE = 30
    UPDATE = 31
    DELETE = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    XA_PREPARE = 38
    PARTIAL_UPDATE = 39
    TRANSACTION_PAYLOAD = 40
    TAGGED_GTID = 42
    MARIADB_GTID = 162
    COMPRESSED_QUERY = 165
    COMPRESSED_WRITE_V1 = 166
    COMPRESSED_UPDATE_V1 = 167
    COMPRESSED_DELETE_V1 = 168
    COMPRESSED_WRITE = 169
    COMPRESSED_UPDATE = 170
    COMPRESSED_DELETE = 171


WRITES: Final = frozenset({Kind.WRITE_V1, Kind.WRITE})
UPDATES: Final = frozenset({Kind.UPDATE_V1, Kind.UPDATE})
DELETES: Final = frozenset({Kind.DELETE_V1, Kind.DELETE})
ROWS: Final = WRITES | UPDATES | DELETES
# They hold changes that nothing here reads.
UNREADABLE: Final = {
    Kind.PARTIAL_UPDATE: "parts of JSON documents (binlog_row_value_options = PARTIAL_JSON)",
    Kind.TRANSACTION_PAYLOAD: "a compressed transaction (binlog_transaction_compression = ON)",
    **dict.fromkeys(
        (
            Kind.COMPRESSED_QUERY,
            Kind.COMPRESSED_WRITE_V1,
            Kind.COMPRESSED_UPDATE_V1,
            Kind.COMPRESSED_DELETE_V1,
            Kind.COMPRESSED_WRITE,
            Kind.COMPRESSED_UPDATE,
            Kind.COMPRESSED_DELETE,
        ),
        "compressed events (log_bin_compress = ON)",
    ),
    Kind.INCIDENT: "an incident: the server lost events",
}


class DamagedLog(ValueError):
    """The bytes of a log are not what their checksum says, or no events."""


# What reading bytes ends in that were written as something else. Without checksums nothing tells
# that an event is damaged but what is made of it.
BROKEN: Final = (IndexError, KeyError, ValueError, ArithmeticError, struct.error)
_FILE: Final = re.compile(r".*\.\d+", re.DOTALL)


def why_broken(error: Exception) -> str:
    """One of ``BROKEN`` in words; what was refused by name says so itself."""
    if type(error) not in (*BROKEN, UnicodeDecodeError, OverflowError, ZeroDivisionError):
        return str(error)
    return f"an event that is none: {type(error).__name__}: {error}"


class Event(NamedTuple):
    """One event.

    Attributes:
        kind: One of ``Kind``, or a number that nothing here knows.
        timestamp: When it was written, in seconds since 1970.
        server_id: Of the server that wrote it first.
        file: That it stands in.
        start: Where it begins.
        end: Where the next one does.
        body: What is behind its header, without a checksum.
        mark: A number for header and body, which another event of the same place would not have.
    """

    kind: int
    timestamp: int
    server_id: int
    file: str
    start: int
    end: int
    body: bytes
    mark: int


def events(packets: Iterable[Packets], file: str, position: int) -> Iterator[Event]:
    """Those of a dump, without those that the server made up for the reader.

    Args:
        packets: Of ``clients.mysql.binlog.dump``.
        file: Where the dump begins.
        position: The byte in it.

    Raises:
        DamagedLog: Something is no event, or not the one that was written.
    """
    checked: bool | None = None
    unpack = _HEADER.unpack_from
    for data, starts, ends in ((each.data, each.starts, each.ends) for each in packets):
        for begin, end in zip(starts, ends, strict=True):
            begin += 1
            if end - begin < HEADER:
                raise DamagedLog(f"{file}:{position}: something that is no event")
            timestamp, kind, server_id, length, log_pos, flags = unpack(data, begin)
            if length != end - begin:
                raise DamagedLog(f"{file}:{position}: an event that is cut short")
            if kind == Kind.FORMAT:
                checked = data[end - _CHECKSUM - 1] == _CRC32
            elif checked is None:
                # The first event stands before the one that says whether there are checksums.
                checked = _is_whole(data, begin, end)
            mark = zlib.crc32(data[begin : end - _CHECKSUM] if checked else data[begin:end])
            body = data[begin + HEADER : end - _CHECKSUM if checked else end]
            # Of the event that a file begins with, the server changes flags without a new checksum.
            if checked and kind != Kind.FORMAT:
                if mark != int.from_bytes(data[end - _CHECKSUM : end], "little"):
                    raise DamagedLog(f"{file}:{position}: an event does not match its checksum")
            if kind == Kind.ROTATE and (flags & _ARTIFICIAL or log_pos == 0):
                place, name = int.from_bytes(body[:8], "little"), body[8:].decode(errors="replace")
                if not _FILE.fullmatch(name):
                    raise DamagedLog(f"{file}:{position}: it goes on in a file {name[:80]!r}")
                if name != file:
                    file, position = name, place
                checked = None
                continue
            if flags & _ARTIFICIAL or log_pos == 0:
                continue
            # In 32 bits; a file may be longer, a single event not.
            position += (log_pos - position) % 2**32
            if kind == Kind.FORMAT:
                # Without the flags.
                mark = zlib.crc32(body, timestamp)
            yield Event(kind, timestamp, server_id, file, position - length, position, body, mark)


def _is_whole(data: bytes, begin: int, end: int) -> bool:
    found = int.from_bytes(data[end - _CHECKSUM : end], "little")
    return zlib.crc32(data[begin : end - _CHECKSUM]) == found

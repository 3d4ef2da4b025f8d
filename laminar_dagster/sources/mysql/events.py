"""Parses the events of a binary log, each with its file and end position.

Every event that has a checksum is verified. An event states its end in 32 bits only; positions are
continued beyond 4 GiB.
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
# Set on events that the server makes up for the reader, and that are in no file.
_ARTIFICIAL: Final = 0x20


class Kind(IntEnum):
    """The type codes of events. MariaDB's own are above 160."""

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
# Events with changes that this reader does not support, and why.
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
    """The bytes of a log do not match their checksum, or are no events."""


# The errors that parsing damaged bytes may raise. Without checksums, damage shows only when an
# event is parsed.
BROKEN: Final = (IndexError, KeyError, ValueError, ArithmeticError, struct.error)
_FILE: Final = re.compile(r".*\.\d+", re.DOTALL)


def why_broken(error: Exception) -> str:
    """An error of ``BROKEN`` as text; subclasses that are raised on purpose have their own."""
    if type(error) not in (*BROKEN, UnicodeDecodeError, OverflowError, ZeroDivisionError):
        return str(error)
    return f"an event that is none: {type(error).__name__}: {error}"


class Event(NamedTuple):
    """One event.

    Attributes:
        kind: One of ``Kind``, or an unknown number.
        timestamp: When it was written, in seconds since 1970.
        server_id: The server that wrote it first.
        file: The file that contains it.
        start: Where it begins.
        end: Where the next one begins.
        body: The bytes after its header, without the checksum.
        mark: A CRC of header and body, which another event at the same place would not have.
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
    """The events of a dump, without those that the server made up for the reader.

    Args:
        packets: From ``clients.mysql.binlog.dump``.
        file: The file in which the dump begins.
        position: The byte in it.

    Raises:
        DamagedLog: Bytes are no event, or do not match their checksum.
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
                # This event precedes the FORMAT event that says whether there are checksums.
                checked = _is_whole(data, begin, end)
            mark = zlib.crc32(data[begin : end - _CHECKSUM] if checked else data[begin:end])
            body = data[begin + HEADER : end - _CHECKSUM if checked else end]
            # The server changes the flags of a FORMAT event without updating its checksum.
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
            # ``log_pos`` has 32 bits; a file may be longer, a single event not.
            position += (log_pos - position) % 2**32
            if kind == Kind.FORMAT:
                # Without the header, whose flags the server changes.
                mark = zlib.crc32(body, timestamp)
            yield Event(kind, timestamp, server_id, file, position - length, position, body, mark)


def _is_whole(data: bytes, begin: int, end: int) -> bool:
    found = int.from_bytes(data[end - _CHECKSUM : end], "little")
    return zlib.crc32(data[begin : end - _CHECKSUM]) == found

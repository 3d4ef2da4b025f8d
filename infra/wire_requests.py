"""Telling on the wire what a request is about. For connections without TLS, but for one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

_END_TXN: Final = 26
# What goes before the name of the transaction, and more than the name and the rest ever take.
_KAFKA_HEADER: Final = struct.Struct(">ihh")
_LARGEST_END_TXN: Final = 1024
_MYSQL_QUERY: Final = 3
_MYSQL_COMMIT_BYTES: Final = 4 + 1 + len("COMMIT")
# A record of data; TLS 1.3 hides the kind of it behind the data, and adds a tag.
_TLS_DATA: Final = b"\x17\x03\x03"
_TLS_ADDED: Final = 1 + 16


def is_postgres_commit(data: bytes) -> bool:
    """Whether a client of PostgreSQL sends COMMIT, in the simple or the extended protocol."""
    return b"COMMIT\0" in data


def is_mysql_commit(data: bytes) -> bool:
    """Whether a client of MySQL or MariaDB sends COMMIT as a query."""
    return len(data) > 5 and data[4] == _MYSQL_QUERY and data[5:].strip().upper() == b"COMMIT"


def is_encrypted_mysql_commit(data: bytes) -> bool:
    """The same over TLS 1.3, by its size: no other statement has six letters."""
    size = _MYSQL_COMMIT_BYTES + _TLS_ADDED
    return data[:5] == _TLS_DATA + size.to_bytes(2, "big") and len(data) == 5 + size


def is_kafka_end_txn(data: bytes) -> bool:
    """Whether a producer asks its coordinator to end a transaction."""
    return any(key == _END_TXN and size < _LARGEST_END_TXN for size, key in _frames(data))


def kafka_kinds(data: bytes) -> set[int]:
    """The kinds of requests that a client of Kafka sends in one piece: a busy one joins several."""
    return {key for _, key in _frames(data)}


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Size and kind of every request in a piece that begins with one."""
    place = 0
    while place + _KAFKA_HEADER.size <= len(data):
        size, key, _version = _KAFKA_HEADER.unpack_from(data, place)
        if size <= 0:
            return
        yield size, key
        place += 4 + size

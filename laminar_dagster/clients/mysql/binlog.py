"""Asks for the events of a binary log, from a place on up to what is there now.

The request is the one of ``mysqlbinlog``: as server 0, and without waiting for more. So nothing is
registered, nothing is consumed, no replica of another number is thrown out, and any number of
readers may ask at the same time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pymysql
from pymysql.constants import COMMAND

from laminar_dagster.clients.mysql.packets import Packets, stream
from laminar_dagster.clients.mysql.session import Session

# Where the first event of a file stands, behind four bytes that say what it is.
FIRST_EVENT: Final = 4
# What the server says when it cannot begin there: the file is gone, or too short, or damaged.
CANNOT_BEGIN: Final = 1236
# A request has 32 bits for a place.
LAST_PLACE: Final = 2**32 - 1

_WITHOUT_WAITING: Final = 1
_NOBODY: Final = 0
# That the events may come with their checksums, and in MariaDB that its own kinds are known.
_ABILITIES: Final = (
    "SET @master_binlog_checksum = @@global.binlog_checksum,"
    " @source_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4"
)


def dump(session: Session, file: str, position: int) -> Iterator[Packets]:
    """The events from a place on. Each payload is a zero and an event.

    The session is good for nothing else after it.

    Raises:
        pymysql.Error: ``CANNOT_BEGIN``, or the connection is lost.
    """
    if position > LAST_PLACE:
        raise pymysql.err.OperationalError(CANNOT_BEGIN, f"position {position} is out of reach")
    session.run(_ABILITIES)
    request = struct.pack("<IHI", position, _WITHOUT_WAITING, _NOBODY) + file.encode()
    session.send(COMMAND.COM_BINLOG_DUMP, request)
    yield from stream(session)

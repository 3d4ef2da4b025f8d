"""Requests the events of a binary log, from a position to its present end.

The request is that of ``mysqlbinlog``: as server 0, and without waiting for more. So nothing is
registered or consumed, no replica with the same id is disconnected, and any number of readers may
ask at the same time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pymysql
from pymysql.constants import COMMAND

from laminar_dagster.clients.mysql.packets import Packets, stream
from laminar_dagster.clients.mysql.session import Session

# The position of a file's first event, behind a magic number of four bytes.
FIRST_EVENT: Final = 4
# The server's error when it cannot begin there: the file is gone, too short, or damaged.
CANNOT_BEGIN: Final = 1236
# A request has 32 bits for a position.
LAST_PLACE: Final = 2**32 - 1

_WITHOUT_WAITING: Final = 1
_NOBODY: Final = 0
# Declares that this reader accepts checksums, and MariaDB's own event types.
_ABILITIES: Final = (
    "SET @master_binlog_checksum = @@global.binlog_checksum,"
    " @source_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4"
)


def dump(session: Session, file: str, position: int) -> Iterator[Packets]:
    """The events from a position on. Each payload is a zero byte and an event.

    The session cannot be used for anything else afterwards.

    Raises:
        pymysql.Error: ``CANNOT_BEGIN``, or the connection is lost.
    """
    if position > LAST_PLACE:
        raise pymysql.err.OperationalError(CANNOT_BEGIN, f"position {position} is out of reach")
    session.run(_ABILITIES)
    request = struct.pack("<IHI", position, _WITHOUT_WAITING, _NOBODY) + file.encode()
    session.send(COMMAND.COM_BINLOG_DUMP, request)
    yield from stream(session)

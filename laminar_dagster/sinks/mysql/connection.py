"""Settings of a session, and requirements on the server's configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pymysql

from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.sinks.changes import Unwritable

# Errors instead of truncated or replaced values; a key of 0 must not become the next
# AUTO_INCREMENT.
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)
_FACTS: Final = """
    SELECT VERSION(), @@global.read_only, @@global.innodb_read_only, @@global.local_infile,
           @@session.max_allowed_packet, @@global.innodb_flush_log_at_trx_commit,
           @@global.log_bin, @@global.sync_binlog
"""
# Collations that distinguish all strings, trailing spaces too: MariaDB's and MySQL's.
_COLLATIONS: Final = """
    SELECT COLLATION_NAME FROM information_schema.COLLATIONS
    WHERE COLLATION_NAME IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin')
    ORDER BY COLLATION_NAME DESC LIMIT 1
"""
# Set the isolation level, since a server may default to a stricter one: that locks gaps too, and
# sinks of one database would block each other.
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

# How much longer the client waits than the server, whose own time-out says what happened.
_UNTIL_THE_SERVER_SPEAKS: Final = 30.0


class ReadOnly(pymysql.err.OperationalError):
    """The server is read-only."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time-outs in seconds.

    Attributes:
        lock: To wait for a lock.
        statement: For one statement. Statements are bounded in size, so this does not bound an
            epoch.
        idle: Between statements of a session, such as while a file is read. After it, the server
            ends the transaction of a suspended writer.
        commit: To wait for the answer to a COMMIT.
    """

    lock: float = 60.0
    statement: float = 600.0
    idle: float = 300.0
    commit: float = 30.0


@dataclass(frozen=True, slots=True)
class Facts:
    """A server's version and configuration.

    Attributes:
        takes_streams: Whether it allows ``LOAD DATA LOCAL``.
        packet: The maximum size of a statement in bytes.
        collation: The collation for new text columns; empty if the server has no suitable one.
    """

    is_mariadb: bool
    takes_streams: bool
    packet: int
    collation: str
    flush: int
    binlog: bool
    sync_binlog: int

    def check_recent(self) -> None:
        """Refuse a server without a collation that distinguishes all keys.

        Raises:
            Unwritable: There is no such collation.
        """
        if not self.collation:
            raise Unwritable("the server is older than MySQL 8.0.17 and MariaDB 10.2")

    def check_durable(self) -> None:
        """Refuse a server whose crash could lose a committed epoch.

        Raises:
            Unwritable: The server does not flush its logs at each commit.
        """
        if self.flush != 1:
            setting, value = "innodb_flush_log_at_trx_commit", self.flush
        elif self.binlog and self.sync_binlog != 1:
            setting, value = "sync_binlog", self.sync_binlog
        else:
            return
        raise Unwritable(
            f"the server's `{setting}` is {value}: a crash could take an epoch back;"
            f" SET GLOBAL {setting} = 1, or set durability = 'relaxed'"
        )


def prepare(session: Session, limits: Limits) -> Facts:
    """Set the session's variables, and read the server's configuration.

    Raises:
        ReadOnly: The server is read-only.
        pymysql.Error: The connection is lost.
    """
    ((version, *read_only, streams, packet, flush, binlog, sync),) = session.run(_FACTS).rows
    is_mariadb = "mariadb" in version.lower()
    if any(read_only):
        raise ReadOnly(1290, "the server is read-only, as replicas are")
    found = session.run(_COLLATIONS).rows
    settings = {
        "sql_mode": _SQL_MODE,
        "time_zone": "+00:00",
        # Messages in English, like those of this project, whatever the server's language.
        "lc_messages": "en_US",
        "innodb_lock_wait_timeout": _whole(limits.lock),
        "lock_wait_timeout": _whole(limits.lock),
        "wait_timeout": _whole(limits.idle),
        # How long the server waits for more rows of a stream.
        "net_read_timeout": _whole(limits.idle),
        "net_write_timeout": _whole(limits.idle),
        "completion_type": 0,
        "foreign_key_checks": 1,
        "unique_checks": 1,
        "sql_notes": 1,
        "sql_safe_updates": 0,
        "sql_select_limit": 2**64 - 1,
    }
    if is_mariadb:
        settings |= {"max_statement_time": limits.statement, "check_constraint_checks": 1}
        # Not in MySQL: its default is larger, and setting it needs a privilege.
        settings |= {"max_error_count": 64}
    names = ", ".join(f"SESSION {name} = %s" for name in settings)
    session.run(f"SET {names}", [*settings.values()])
    session.run(_ISOLATION)
    # A client-side time-out: MySQL has no time limit for statements that write.
    session.limit(max(limits.lock, limits.statement) + _UNTIL_THE_SERVER_SPEAKS)
    return Facts(
        is_mariadb=is_mariadb,
        takes_streams=bool(streams),
        packet=packet,
        collation=found[0][0] if found else "",
        flush=flush,
        binlog=bool(binlog),
        sync_binlog=sync,
    )


def _whole(seconds: float) -> int:
    # The server counts in whole seconds, and 0 would mean not to wait at all.
    return max(1, math.ceil(seconds))

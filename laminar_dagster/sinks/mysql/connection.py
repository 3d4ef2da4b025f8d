"""What a server must be like to publish into, and what holds in a session there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pymysql

from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.sinks.changes import Unwritable

# A key of 0 must not become the next free number, and nothing may be cut, rounded or replaced.
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)
_FACTS: Final = """
    SELECT VERSION(), @@global.read_only, @@global.innodb_read_only, @@global.local_infile,
           @@session.max_allowed_packet, @@global.innodb_flush_log_at_trx_commit,
           @@global.log_bin, @@global.sync_binlog
"""
# The one that tells all texts apart, a trailing space too: MariaDB's, and MySQL's.
_COLLATIONS: Final = """
    SELECT COLLATION_NAME FROM information_schema.COLLATIONS
    WHERE COLLATION_NAME IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin')
    ORDER BY COLLATION_NAME DESC LIMIT 1
"""
# The level is named, since a server may have another default: under a stricter one, gaps are
# locked as well, and sinks of one database would be in each other's way.
_ISOLATION: Final = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

# The server gives up first, where it can, and then says why.
_UNTIL_THE_SERVER_SPEAKS: Final = 30.0


class ReadOnly(pymysql.err.OperationalError):
    """The server takes no writes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which something is given up.

    Attributes:
        lock: To wait for a lock.
        statement: For one statement. Statements are bounded in size, so this does not bound an
            epoch.
        idle: Without a word from us inside a session, such as while a file is read. It ends the
            transaction of a writer that was stopped.
        commit: To wait for the answer to a COMMIT.
    """

    lock: float = 60.0
    statement: float = 600.0
    idle: float = 300.0
    commit: float = 30.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server is like.

    Attributes:
        takes_streams: Whether rows can be loaded from a stream.
        packet: The bytes of the longest statement.
        collation: What new text columns are compared by; empty if it knows none that will do.
    """

    is_mariadb: bool
    takes_streams: bool
    packet: int
    collation: str
    flush: int
    binlog: bool
    sync_binlog: int

    def check_recent(self) -> None:
        """Without a collation that tells all texts apart, keys could be mixed up.

        Raises:
            Unwritable: There is none.
        """
        if not self.collation:
            raise Unwritable("the server is older than MySQL 8.0.17 and MariaDB 10.2")

    def check_durable(self) -> None:
        """An epoch that a crash of the server takes back would be a gap.

        Raises:
            Unwritable: It could be.
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
    """Set what holds in a session, and find out what the server is like.

    Raises:
        ReadOnly: It takes no writes.
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
        # Errors are read by people who read the rest of them in English.
        "lc_messages": "en_US",
        "innodb_lock_wait_timeout": _whole(limits.lock),
        "lock_wait_timeout": _whole(limits.lock),
        "wait_timeout": _whole(limits.idle),
        # While rows are streamed, the server waits no longer for the next ones.
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
        # MySQL keeps more, and lets nobody say how many who may not set everything.
        settings |= {"max_error_count": 64}
    names = ", ".join(f"SESSION {name} = %s" for name in settings)
    session.run(f"SET {names}", [*settings.values()])
    session.run(_ISOLATION)
    # MySQL has no limit for statements that write: there, this one ends them.
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
    # The server counts in whole seconds, and takes none for no waiting at all.
    return max(1, math.ceil(seconds))

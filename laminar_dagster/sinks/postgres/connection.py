"""Transactions on a PostgreSQL server, with their settings and time-outs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from laminar_dagster.clients.hanging_up import hung_up_after
from laminar_dagster.clients.postgres.server import Connection

# Keepalive on the server's side: a client whose machine is gone must not hold locks.
_SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_connection_check_interval": "5000",
}
# Set the isolation level, since a database or a role may default to a stricter one: there, a
# committer that waited for the ledger's row fails instead of seeing the other's update.
_BEGIN: Final = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
_BEGIN_READING: Final = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
# Sets the settings that this server knows, until the transaction ends. One works on Linux only.
_SET: Final = sql.SQL("""
    SELECT pg_catalog.set_config(name, value, true)
    FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
    WHERE pg_catalog.current_setting(name, true) IS NOT NULL
      AND (name <> 'client_connection_check_interval' OR pg_catalog.version() LIKE '%%linux%%')
      AND (name <> 'synchronous_commit'
           OR pg_catalog.current_setting(name) IN ('off', 'local'))
""")

# No time-out applies while the server waits for the rows of a COPY: a client suspended there would
# keep its locks for ever. So the next committer that it blocks ends sessions of the same sink that
# have waited like that for longer than a statement may take.
_END_STUCK: Final = sql.SQL("""
    SELECT pg_catalog.pg_terminate_backend(pid)
    FROM pg_catalog.pg_stat_activity
    WHERE datname = pg_catalog.current_database()
      AND usename = current_user
      AND application_name = pg_catalog.current_setting('application_name')
      AND pid <> pg_catalog.pg_backend_pid()
      AND state = 'active' AND wait_event = 'ClientRead'
      AND query_start < pg_catalog.clock_timestamp() - %s * interval '1 second'
""")


@dataclass(frozen=True, slots=True)
class Limits:
    """Time-outs in seconds, enforced by the server, or else by the client.

    Attributes:
        lock: To wait for a lock.
        statement: For one statement. Statements are bounded in size, so this does not bound an
            epoch. See also ``end_stuck_sessions``.
        idle: Between two statements of the transaction, such as while a file is read. It ends
            the transaction of a writer that was suspended there.
        commit: For the reply to a COMMIT. Without one, the outcome is not known.
        abort: For the reply to a ROLLBACK. Without one, the server rolls back by itself.
    """

    lock: float = 60.0
    statement: float = 600.0
    idle: float = 300.0
    commit: float = 30.0
    abort: float = 10.0


@contextmanager
def transaction(
    connection: Connection, limits: Limits, *, read_only: bool = False
) -> Iterator[None]:
    """A transaction; what is not committed inside is rolled back."""
    settings = {
        "lock_timeout": _milliseconds(limits.lock),
        "statement_timeout": _milliseconds(limits.statement),
        "idle_in_transaction_session_timeout": _milliseconds(limits.idle),
        # Otherwise a crash of the server could lose a committed epoch unnoticed.
        "synchronous_commit": "on",
        # Error instead of silently not deleting rows that a row-security policy hides.
        "row_security": "off",
        "timezone": "UTC",
        **_SERVER_KEEPALIVE,
    }
    connection.execute(_BEGIN_READING if read_only else _BEGIN)
    try:
        connection.execute(_SET, ([*settings], [*settings.values()]))
        yield
    finally:
        # Explicit, because after a mere close the server may hold the locks for a while.
        if connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error), hung_up_after(connection.fileno(), limits.abort):
                connection.execute("ROLLBACK")


def end_stuck_sessions(connection: Connection, limits: Limits) -> int:
    """End sessions of the same sink that are stuck in a COPY.

    Returns:
        The number of sessions ended. Each is rolled back; its client finds a closed connection.
    """
    return len(connection.execute(_END_STUCK, (limits.statement,)).fetchall())


def _milliseconds(seconds: float) -> str:
    # Zero would mean no limit.
    return str(max(1, round(seconds * 1000)))

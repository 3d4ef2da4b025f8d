"""What holds inside a transaction on a PostgreSQL server."""

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

# The same from the server's side: a client whose machine is gone must not hold a lock.
_SERVER_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_connection_check_interval": "5000",
}
# The level is named, since a database or a role may have another default: under a stricter one,
# who waited for the ledger's row would be refused instead of seeing what the other has written.
_BEGIN: Final = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
_BEGIN_READING: Final = sql.SQL("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
# Settings that this server has; one of them only works on Linux. All end with the transaction.
_SET: Final = sql.SQL("""
    SELECT pg_catalog.set_config(name, value, true)
    FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
    WHERE pg_catalog.current_setting(name, true) IS NOT NULL
      AND (name <> 'client_connection_check_interval' OR pg_catalog.version() LIKE '%%linux%%')
      AND (name <> 'synchronous_commit'
           OR pg_catalog.current_setting(name) IN ('off', 'local'))
""")

# No limit of the server's holds while it waits for the rows of a COPY: a client that was stopped
# there would keep its locks for ever. A session of the same sink that has waited so for longer than
# a statement may take is ended by the next one that it keeps out.
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
    """Seconds after which what takes too long is ended: by the server, or else by us.

    Attributes:
        lock: To wait for a lock.
        statement: For one statement. Statements are bounded in size, so this does not bound an
            epoch. See also ``end_stuck_sessions``.
        idle: Without a statement inside the transaction, such as while a file is read. It ends
            the transaction of a writer that was stopped between two statements.
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
        # An epoch that a crash of the server takes back would be a gap that nobody sees.
        "synchronous_commit": "on",
        # A row that a policy hides would stay, when it is to be deleted: better an error.
        "row_security": "off",
        "timezone": "UTC",
        **_SERVER_KEEPALIVE,
    }
    connection.execute(_BEGIN_READING if read_only else _BEGIN)
    try:
        connection.execute(_SET, ([*settings], [*settings.values()]))
        yield
    finally:
        # Not left to closing, after which the server would go on holding the locks for a while.
        if connection.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error), hung_up_after(connection.fileno(), limits.abort):
                connection.execute("ROLLBACK")


def end_stuck_sessions(connection: Connection, limits: Limits) -> int:
    """End sessions of the same sink that stand still in the middle of a statement.

    Returns:
        How many there were. Each is rolled back; its client finds its connection closed.
    """
    return len(connection.execute(_END_STUCK, (limits.statement,)).fetchall())


def _milliseconds(seconds: float) -> str:
    # Zero would mean no limit.
    return str(max(1, round(seconds * 1000)))

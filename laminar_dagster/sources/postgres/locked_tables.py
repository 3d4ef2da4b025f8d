"""Connections that lock tables for as long as these are copied.

A statement that rewrites a table (ALTER TABLE … TYPE, VACUUM FULL, CLUSTER, TRUNCATE) destroys what
older snapshots see: to them the table is empty, or its rows are in other blocks, and the log does
not show it. So every connection locks every table before the snapshot is taken, and until the last
of them is done. A connection that locked later could wait behind such a statement, which waits for
the locks of the other connections: a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.postgres.tables import Table

_BEGIN: Final = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
# The weakest lock, for which the SELECT privilege suffices. It assigns no transaction id, so that
# creating a slot does not wait for this transaction.
_LOCK: Final = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE")


@contextmanager
def locking_sessions(
    database: Database, tables: Sequence[Table], count: int
) -> Iterator[list[Connection]]:
    """Open connections in transactions that hold locks on the tables, and have run no query yet.

    Args:
        database: The database that has the tables.
        tables: The tables to lock, until the connections are closed.
        count: How many connections to open.

    Raises:
        SourceUnavailable: A table is locked by another session for longer than the lock timeout.
    """
    names = sql.SQL(", ").join(each.own_rows for each in tables)
    with ExitStack() as stack:
        sessions = [stack.enter_context(database.session()) for _ in range(count)]
        for each in sessions:
            each.execute(_BEGIN)
            each.execute(_LOCK.format(names))
        yield sessions

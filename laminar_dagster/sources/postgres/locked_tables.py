"""Connections that hold tables as they are for as long as these are copied.

A statement that rewrites a table (ALTER TABLE … TYPE, VACUUM FULL, CLUSTER, TRUNCATE) does not keep
what older snapshots see: to them the table is empty, or its rows stand in other blocks, and the log
tells nothing of it. So every connection locks every table before the snapshot is taken, and until
the last of them is done. One that asked for its lock later would wait behind a statement that waits
for the locks of the others, and the copy would never end.
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
# The mildest lock, for which SELECT is right enough. Without an id of a transaction: whoever makes
# a slot does not wait for it.
_LOCK: Final = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE")


@contextmanager
def locking_sessions(
    database: Database, tables: Sequence[Table], count: int
) -> Iterator[list[Connection]]:
    """Connections in transactions that hold the tables, and have looked at nothing yet.

    Args:
        database: That has the tables.
        tables: To be held, until the connections are closed.
        count: How many connections.

    Raises:
        SourceUnavailable: Somebody else has locked a table for longer than this source waits.
    """
    names = sql.SQL(", ").join(each.own_rows for each in tables)
    with ExitStack() as stack:
        sessions = [stack.enter_context(database.session()) for _ in range(count)]
        for each in sessions:
            each.execute(_BEGIN)
            each.execute(_LOCK.format(names))
        yield sessions

"""Reads the rows of a COPY TO STDOUT from libpq as fast as they arrive.

psycopg's own reader waits for every row through a generator, which costs a few microseconds each.
Here it is used only when nothing has arrived; rows already received are taken directly.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from laminar_dagster.clients.postgres.server import Connection


def copy_out(connection: Connection, statement: sql.Composed) -> Iterator[bytes]:
    """Yield what the server sends, one piece for each row.

    Raises:
        psycopg.Error: The statement failed, or the connection broke.
    """
    take = connection.pgconn.get_copy_data
    with connection.cursor().copy(statement) as copy:
        while row := copy.read():
            yield bytes(row)
            size, data = take(1)
            while size > 0:
                yield bytes(data)
                size, data = take(1)
            if size < 0:
                _finish(connection)
                return


def _finish(connection: Connection) -> None:
    """Fetch the result of the COPY, which psycopg has not seen."""
    while (result := connection.pgconn.get_result()) is not None:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=connection.info.encoding)

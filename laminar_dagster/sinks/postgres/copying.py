"""Send rows with ``COPY``."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.sinks.bad_values import show_row
from laminar_dagster.sinks.portions import ahead, batches, check_count
from laminar_dagster.sinks.postgres.columns import PostgresColumn, encode
from laminar_dagster.sinks.postgres.errors import line_of
from laminar_dagster.sinks.postgres.wire import HEADER, TRAILER


def copy_rows(
    connection: Connection,
    statement: sql.Composed,
    columns: Sequence[PostgresColumn],
    rows: pa.Table,
    key: tuple[str, ...] = (),
) -> None:
    """Send rows with a ``COPY`` statement.

    Args:
        connection: The connection, inside a transaction.
        statement: The ``COPY`` statement.
        columns: Its columns.
        rows: The rows; if there are none, nothing is sent.
        key: The columns that identify a refused row in the error; empty for all columns.

    Raises:
        Unwritable: A value does not fit, or not every row was inserted.
        psycopg.Error: The server refuses; a note names the row, if the server says which.
    """
    if not rows.num_rows:
        return
    with connection.cursor() as cursor:
        try:
            with cursor.copy(statement) as copy:
                copy.write(HEADER)
                for data in ahead(encode(columns, batch, key) for batch in batches(rows)):
                    copy.write(memoryview(data))
                copy.write(TRAILER)
        except psycopg.Error as error:
            line = line_of(error)
            if line is not None and line <= rows.num_rows:
                names = key or [column.name for column in columns]
                error.add_note(f"in the row {show_row(rows, line - 1, names)}")
            raise
        check_count(cursor.rowcount, rows.num_rows)

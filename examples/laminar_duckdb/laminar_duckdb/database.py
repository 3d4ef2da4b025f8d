"""Opens DuckDB files, which one process at a time may write to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

PATIENCE: Final = 60.0
_PAUSE: Final = 0.01


@contextmanager
def connected(
    path: Path, patience: float, *, read_only: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection, once no other process has the file.

    Args:
        path: The database's file.
        patience: For how many seconds to wait.
        read_only: Lets other processes read at the same time.

    Raises:
        duckdb.Error: The file cannot be opened, or not in time.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=read_only)
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            if not is_taken(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            break
    try:
        # A source's and a sink's times are UTC; DuckDB's own are the machine's.
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


def is_taken(error: duckdb.Error) -> bool:
    """Whether a file could not be opened because somebody else has it."""
    told = str(error)
    # The second: this process has it open, for writing if we read or the other way around.
    return "Could not set lock" in told or "different configuration" in told


def quote(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def has_table(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Whether there is a table of this name, whose case does not matter."""
    found = connection.execute(
        "SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = lower(?)"
        " AND database_name = current_database() AND schema_name = 'main'",
        [name],
    )
    return found.fetchone() is not None


def columns_of(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, str]:
    """The columns of a query, with DuckDB's types."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {query}").fetchall()}

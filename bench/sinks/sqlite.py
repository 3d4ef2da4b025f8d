"""SQLite, beside ``executemany`` with the same journal and the same flush."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.measure import timed, timed_and_undone
from bench.sinks.place import PIPELINE, Peer
from bench.sinks.rows import SINK, as_tuples
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.sqlite.sink import SqliteSink


@dataclass(frozen=True)
class SqlitePlace:
    """A file."""

    path: Path

    name = "sink-sqlite/append"
    title = "SQLite, append"
    replaces = False
    commit_limit = None

    def sink(self) -> Sink:
        """See ``Place``."""
        return SqliteSink(SINK, PIPELINE, self.path, str(SINK))

    def prepare(self, *names: str) -> None:
        """See ``Place``."""
        with self._connection() as connection:
            for name in names:
                connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM "{SINK}" WHERE 0')

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """See ``Place``."""
        return (Peer("plain", "sqlite3: executemany", lambda: self._append(rows)),)

    def count(self, name: str) -> int:
        """See ``Place``."""
        with self._connection() as connection:
            ((found,),) = connection.execute(f'SELECT count(*) FROM "{name}"')
            return int(found)

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """See ``Place``."""
        with self._connection() as connection:
            return tuple(
                timed_and_undone(
                    lambda: connection.execute("BEGIN IMMEDIATE"),
                    lambda: connection.execute("ROLLBACK"),
                )
                for _ in range(times)
            )

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """See ``Place``."""
        with self._connection() as connection:
            _insert(connection, rows)
            return timed(lambda: connection.execute("ROLLBACK"))

    def _append(self, rows: pa.Table) -> None:
        with self._connection() as connection:
            _insert(connection, rows)
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = EXTRA")
            yield connection


def _insert(connection: sqlite3.Connection, rows: pa.Table) -> None:
    """SQLite has no type for moments: they are texts, as the sink writes them."""
    place = rows.schema.get_field_index("at")
    moments = rows.column("at").cast(pa.timestamp("us")).cast(pa.string())
    values = as_tuples(rows.set_column(place, "at", moments))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO plain VALUES (?, ?, ?, ?, ?)", values)

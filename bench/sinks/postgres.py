"""PostgreSQL, beside psycopg's ``COPY``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql

from bench.measure import timed, timed_and_undone
from bench.sinks.database import DatabasePlace
from bench.sinks.place import PIPELINE, Peer
from bench.sinks.rows import SINK, Values, as_tuples
from infra.postgres import PostgresEndpoint
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.postgres.sink import PostgresSink

_COPY: Final = sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)")
_TYPES: Final = ("int8", "timestamptz", "text", "float8", "int4")
_TEMPORARY: Final = sql.Identifier("staged")
_MAKE_TEMPORARY: Final = sql.SQL(
    "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS TABLE {} WITH NO DATA"
)


@dataclass(frozen=True)
class PostgresPlace(DatabasePlace):
    """A schema of its own."""

    endpoint: PostgresEndpoint

    connector = "postgres"
    server = "PostgreSQL"

    def sink(self) -> Sink:
        """See ``Place``."""
        server = Server(
            host=self.endpoint.host,
            port=str(self.endpoint.port),
            database=self.endpoint.database,
            user=self.endpoint.user,
            password=self.endpoint.password,
        )
        return PostgresSink(
            SINK, PIPELINE, server, str(SINK), schema=self.mode, mode=self.mode, key=self.key
        )

    def make_schema(self) -> None:
        """The sink makes tables, and no schema."""
        with self._connection() as connection:
            make = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}")
            connection.execute(make.format(sql.Identifier(self.mode)))

    def prepare(self, *names: str) -> None:
        """See ``Place``."""
        make = sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)")
        with self._connection() as connection:
            for name in names:
                connection.execute(make.format(self._table(name), self._table(SINK)))

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """See ``Place``."""
        if self.replaces:
            title = "psycopg: COPY, write_row, into a temporary table; INSERT … ON CONFLICT"
            return (Peer("plain", title, lambda: self._write(rows)),)
        ready = cache(lambda: self._encoded(rows))
        return (
            Peer("plain", "psycopg: COPY, write_row", lambda: self._write(rows)),
            Peer(
                "bytes",
                "psycopg: COPY of bytes made beforehand",
                lambda: self._send("bytes", ready()),
            ),
        )

    def count(self, name: str) -> int:
        """See ``Place``."""
        with self._connection() as connection:
            query = sql.SQL("SELECT count(*) FROM {}").format(self._table(name))
            ((found,),) = connection.execute(query).fetchall()
            return int(found)

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """See ``Place``."""
        with psycopg.connect(self.endpoint.dsn(), autocommit=True) as connection:
            return tuple(
                timed_and_undone(
                    lambda: connection.execute("BEGIN"), lambda: connection.execute("ROLLBACK")
                )
                for _ in range(times)
            )

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """See ``Place``."""
        with self._connection() as connection:
            self._put(connection, rows)
            return timed(connection.rollback)

    def _write(self, rows: pa.Table) -> None:
        with self._connection() as connection:
            self._put(connection, rows)

    def _put(self, connection: psycopg.Connection[tuple[Any, ...]], rows: pa.Table) -> None:
        """Rows added, or put by key."""
        table = self._table("plain")
        if not self.replaces:
            _copy(connection, table, as_tuples(rows))
            return
        names = [sql.Identifier(name) for name in rows.column_names]
        changes = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(name) for name in names[1:]
        )
        connection.execute(_MAKE_TEMPORARY.format(_TEMPORARY, table))
        _copy(connection, _TEMPORARY, as_tuples(rows))
        put = sql.SQL("INSERT INTO {} TABLE {} ON CONFLICT ({}) DO UPDATE SET {}")
        connection.execute(put.format(table, _TEMPORARY, names[0], changes))

    def _encoded(self, rows: pa.Table) -> bytes:
        """The rows as the server itself writes them."""
        with self._connection() as connection:
            connection.execute(_MAKE_TEMPORARY.format(_TEMPORARY, self._table(SINK)))
            _copy(connection, _TEMPORARY, as_tuples(rows))
            read = sql.SQL("COPY {} TO STDOUT (FORMAT BINARY)").format(_TEMPORARY)
            with connection.cursor().copy(read) as copy:
                return b"".join(bytes(part) for part in copy)

    def _send(self, name: str, data: bytes) -> None:
        with self._connection() as connection:
            with connection.cursor().copy(_COPY.format(self._table(name))) as copy:
                copy.write(data)

    def _table(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.mode, str(name))

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """One transaction, committed at the end of the block."""
        with psycopg.connect(self.endpoint.dsn()) as connection:
            yield connection


def _copy(
    connection: psycopg.Connection[tuple[Any, ...]], table: sql.Identifier, rows: list[Values]
) -> None:
    with connection.cursor().copy(_COPY.format(table)) as copy:
        copy.set_types(_TYPES)
        for row in rows:
            copy.write_row(row)

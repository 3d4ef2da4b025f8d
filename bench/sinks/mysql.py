"""MariaDB, beside PyMySQL's ``LOAD DATA LOCAL`` and ``executemany``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pymysql
from pymysql.cursors import Cursor

from bench.measure import timed, timed_and_undone
from bench.sinks.database import DatabasePlace
from bench.sinks.place import PIPELINE, Peer
from bench.sinks.rows import KEY, SINK, as_tuples, without_zone
from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.clients.mysql.identifiers import listed, quoted
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.mysql.sink import MysqlSink

_CSV: Final = (
    "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'"
    " LINES TERMINATED BY '\\n' IGNORE 1 LINES"
)
_TEMPORARY: Final = "staged"


@dataclass(frozen=True)
class MysqlPlace(DatabasePlace):
    """A database of its own, and a folder for files of comma-separated values."""

    endpoint: MysqlEndpoint
    folder: Path

    connector = "mysql"
    server = "MariaDB"

    @property
    def _database(self) -> str:
        return f"bench_{self.mode}"

    def sink(self) -> Sink:
        """See ``Place``."""
        server = Server(
            host=self.endpoint.host,
            port=self.endpoint.port,
            database=self._database,
            user=self.endpoint.user,
            password=self.endpoint.password,
        )
        return MysqlSink(SINK, PIPELINE, server, str(SINK), mode=self.mode, key=self.key)

    def make_database(self) -> None:
        """The sink makes tables, and no database."""
        with closing(self.endpoint.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}")

    def prepare(self, *names: str) -> None:
        """See ``Place``."""
        with self._transaction() as cursor:
            for name in names:
                cursor.execute(f"CREATE TABLE {quoted(name)} LIKE {quoted(SINK)}")

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """See ``Place``."""
        if self.replaces:
            title = "PyMySQL: LOAD DATA LOCAL into a temporary table; INSERT … ON DUPLICATE KEY"
            return (Peer("plain", title, lambda: self._write(rows)),)
        return (
            Peer(
                "plain",
                "PyMySQL: LOAD DATA LOCAL of a CSV file that Arrow writes",
                lambda: self._write(rows),
            ),
            Peer("executemany", "PyMySQL: executemany", lambda: self._insert(rows)),
        )

    def count(self, name: str) -> int:
        """See ``Place``."""
        with self._transaction() as cursor:
            cursor.execute(f"SELECT count(*) FROM {quoted(name)}")
            ((found,),) = cursor.fetchall()
            return int(found)

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """See ``Place``."""
        with self._transaction() as cursor:
            return tuple(
                timed_and_undone(
                    lambda: cursor.execute("START TRANSACTION"), lambda: cursor.execute("ROLLBACK")
                )
                for _ in range(times)
            )

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """See ``Place``."""
        with self._transaction() as cursor:
            self._put(cursor, rows)
            return timed(lambda: cursor.execute("ROLLBACK"))

    def _write(self, rows: pa.Table) -> None:
        with self._transaction() as cursor:
            self._put(cursor, rows)

    def _put(self, cursor: Cursor, rows: pa.Table) -> None:
        """Rows added, or put by key."""
        if not self.replaces:
            self._load(cursor, rows, "plain")
            return
        changes = ", ".join(f"{quoted(each)} = VALUES({quoted(each)})" for each in _others(rows))
        cursor.execute(f"CREATE TEMPORARY TABLE {_TEMPORARY} SELECT * FROM plain WHERE FALSE")
        self._load(cursor, rows, _TEMPORARY)
        cursor.execute(
            f"INSERT INTO plain SELECT * FROM {_TEMPORARY} ON DUPLICATE KEY UPDATE {changes}"
        )

    def _insert(self, rows: pa.Table) -> None:
        places = ", ".join(["%s"] * rows.num_columns)
        statement = f"INSERT INTO executemany ({listed(rows.column_names)}) VALUES ({places})"
        with self._transaction() as cursor:
            cursor.executemany(statement, as_tuples(without_zone(rows)))

    def _load(self, cursor: Cursor, rows: pa.Table, table: str) -> None:
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".csv") as file:
            csv.write_csv(without_zone(rows), file.name)
            cursor.execute(
                f"LOAD DATA LOCAL INFILE %s INTO TABLE {quoted(table)} {_CSV}"
                f" ({listed(rows.column_names)})",
                (file.name,),
            )

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """A connection of its own, and one transaction."""
        connection = pymysql.connect(
            host=self.endpoint.host,
            port=self.endpoint.port,
            user=self.endpoint.user,
            password=self.endpoint.password,
            database=self._database,
            local_infile=True,
            ssl_disabled=True,
        )
        with closing(connection), connection.cursor() as cursor:
            yield cursor
            connection.commit()


def _others(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name != KEY]

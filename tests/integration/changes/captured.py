"""A database whose tables are captured: what a test needs of it, on whichever server it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from infra.load import Deadline
from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.config.model import Column, Place, SourceTable
from laminar_dagster.core.ids import SourceId
from laminar_dagster.runtime.assembly import known_connectors
from tests.integration.postgres.tables import Tables

SECRET = "DB_PASSWORD"

Rows = list[tuple[Any, ...]]


class CapturedDatabase(ABC):
    """A database that nobody else uses.

    Attributes:
        moment: The type of a column of moments, which are written and read as UTC.
        forgetful: Options with which the server need not keep what was read.
    """

    connector: ClassVar[str]
    moment: ClassVar[str]
    forgetful: ClassVar[Mapping[str, str]]

    @abstractmethod
    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""

    @abstractmethod
    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """All in one transaction."""

    @abstractmethod
    def fetch(self, query: str) -> Rows:
        """What an independent client gets."""

    @abstractmethod
    def make(self, table: str, columns: str) -> None:
        """A table whose changes tell whole rows."""

    @abstractmethod
    def options(self) -> dict[str, str]:
        """Of a source, but for its tables."""

    @abstractmethod
    def slots(self) -> dict[str, int]:
        """What keeps the log of this server, by its name: from where on."""

    @abstractmethod
    def begin_another_log(self) -> None:
        """What is written from now on can be kept without what was written before."""

    @abstractmethod
    def forget_other_logs(self) -> None:
        """Remove what was written before, if nobody who reads does."""

    # --- the same on every server -----------------------------------------------------------------

    def declaration(self, table: str, columns: str, **others: str) -> str:
        """A ``CREATE SOURCE TABLE`` that reads a table; its password is the variable ``SECRET``."""
        options = self._with(table, others) | {"password": f"${{{SECRET}}}"}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        return f"CREATE SOURCE TABLE {table} ({columns}) WITH ({listed});\n"

    def source_table(self, table: str, columns: Mapping[str, str], **others: str) -> SourceTable:
        """The same as it is read; a type that ends with ``!`` is NOT NULL."""
        options = self._with(table, others)
        traits = known_connectors().traits_of(self.connector, options)
        declared = tuple(
            Column(name, kind.rstrip("!"), nullable=not kind.endswith("!"))
            for name, kind in columns.items()
        )
        return SourceTable(
            source_id=SourceId(table),
            columns=(*declared, *traits.columns),
            watermark=None,
            connector=self.connector,
            options={name: text for name, text in options.items() if name != "connector"},
            place=Place("sources.sql", 1),
            added=tuple(each.name for each in traits.columns),
        )

    def _with(self, table: str, others: Mapping[str, str]) -> dict[str, str]:
        given = {name.replace("__", "."): text for name, text in others.items()}
        return {"connector": self.connector, **self.options(), "tables": table, **given}


class CapturedPostgres(CapturedDatabase):
    """On PostgreSQL."""

    connector = "postgres-cdc"
    moment = "timestamptz"
    forgetful: ClassVar[Mapping[str, str]] = {"retain__wal": "none"}

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def run(self, *statements: str) -> None:
        self._tables.run(*statements)

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        marks = ", ".join(["%s"] * len(rows[0]))
        with self._tables.connect() as connection, connection.transaction():
            connection.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def fetch(self, query: str) -> Rows:
        return self._tables.fetch(query)

    def make(self, table: str, columns: str) -> None:
        self.run(f"CREATE TABLE {table} ({columns})", f"ALTER TABLE {table} REPLICA IDENTITY FULL")

    def options(self) -> dict[str, str]:
        endpoint = self._tables.endpoint
        return {
            "host": endpoint.host,
            "port": str(endpoint.port),
            "database": self._tables.database,
            "user": endpoint.user,
            "password": endpoint.password,
            "slot": self._tables.slot,
            "publication": "all",
            "before": "required",
            "slot.timeout": "20s",
        }

    @contextmanager
    def open_transaction(self) -> Iterator[Callable[[], object]]:
        """One that has changed something; what is yielded commits it."""
        with self._tables.connect() as connection:
            connection.execute("CREATE TABLE meanwhile (id bigint)")
            connection.execute("BEGIN")
            connection.execute("INSERT INTO meanwhile VALUES (1)")
            yield lambda: connection.execute("COMMIT")

    def slots(self) -> dict[str, int]:
        return dict(
            self.fetch(
                "SELECT slot_name::text, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8"
                " FROM pg_replication_slots WHERE database = current_database()"
            )
        )

    def begin_another_log(self) -> None:
        """Nothing: it is told how far it was read."""

    def forget_other_logs(self) -> None:
        """Nothing: it has."""


class CapturedMysql(CapturedDatabase):
    """On MySQL or MariaDB."""

    connector = "mysql-cdc"
    moment = "datetime(6)"
    forgetful: ClassVar[Mapping[str, str]] = {}

    def __init__(self, endpoint: MysqlEndpoint, database: str) -> None:
        self._endpoint = endpoint
        self._database = database

    def run(self, *statements: str) -> None:
        for each in statements:
            self.fetch(each)

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        marks = ", ".join(["%s"] * len(rows[0]))
        with closing(self._endpoint.connect(self._database)) as connection:
            connection.begin()
            connection.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
            connection.commit()

    def fetch(self, query: str) -> Rows:
        with closing(self._endpoint.connect(self._database)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())

    def make(self, table: str, columns: str) -> None:
        self.run(f"CREATE TABLE {table} ({columns}) CHARACTER SET utf8mb4")

    def options(self) -> dict[str, str]:
        return {
            "host": self._endpoint.host,
            "port": str(self._endpoint.port),
            "database": self._database,
            "user": self._endpoint.user,
            "password": self._endpoint.password,
        }

    def slots(self) -> dict[str, int]:
        return {}

    def begin_another_log(self) -> None:
        self.run("FLUSH BINARY LOGS")

    def forget_other_logs(self) -> None:
        *_, (newest, *_) = self.fetch("SHOW BINARY LOGS")
        # The server keeps a file for a moment that it has just handed out.
        deadline = Deadline(60)
        while self.fetch("SHOW BINARY LOGS")[0][0] != newest:
            assert not deadline.is_over
            self.run(f"PURGE BINARY LOGS TO '{newest}'")

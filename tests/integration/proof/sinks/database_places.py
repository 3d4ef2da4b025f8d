"""Tables on database servers, read by the databases' own clients."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql
from psycopg import sql
from pymysql.constants import ER

from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import PostgresEndpoint
from infra.wire_requests import is_mysql_commit, is_postgres_commit
from tests.integration.proof.sinks.accounts import COLUMNS, Rows, View
from tests.integration.proof.sinks.ground import WRITES, Ground, Server


@dataclass(frozen=True)
class PostgresPlace:
    """A table in a schema of its own."""

    ground: Ground
    kind: str
    view: View
    server: Server | None = "postgres"

    def make(self) -> None:
        statement = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}")
        self._ask(statement.format(sql.Identifier(self.ground.name)))

    def options(self) -> dict[str, str]:
        server = self._endpoint
        host, port = self.ground.doors.get("postgres", (server.host, server.port))
        return {
            "connector": "postgres",
            "host": host,
            "port": str(port),
            "database": server.database,
            "user": server.user,
            "password": server.password,
            # So that the wire can be read.
            "sslmode": "disable",
            "schema": self.ground.name,
            "table": self.kind,
            # A writer that was stopped keeps others waiting for no longer than this.
            "idle_timeout": "3s",
            "statement_timeout": "20s",
            **WRITES[self.view],
        }

    def is_commit(self, request: bytes) -> bool:
        return is_postgres_commit(request)

    def ledger(self) -> int:
        table = sql.Identifier(self.ground.name, "_laminar_ledger")
        statement = sql.SQL("SELECT epoch FROM {} WHERE pipeline = {} AND sink = {}")
        found = self._ask(statement.format(table, self.ground.name, self.kind))
        return int(found[0][0]) if found else 0

    def rows(self) -> Rows:
        names = sql.SQL(", ").join(map(sql.Identifier, COLUMNS[self.view]))
        table = sql.Identifier(self.ground.name, self.kind)
        return Counter(self._ask(sql.SQL("SELECT {} FROM {}").format(names, table)))

    @property
    def _endpoint(self) -> PostgresEndpoint:
        endpoint = self.ground.servers["postgres"]
        assert isinstance(endpoint, PostgresEndpoint)
        return endpoint

    def _ask(self, statement: sql.Composed) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._endpoint.dsn(), autocommit=True) as connection:
            try:
                cursor = connection.execute(statement)
            except psycopg.errors.UndefinedTable:
                return []
            return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class MysqlPlace:
    """A table in a database of its own."""

    ground: Ground
    kind: str
    view: View
    server: Server | None = "mariadb"

    def make(self) -> None:
        self._ask(f"CREATE DATABASE IF NOT EXISTS {self.ground.name}", database=None)

    def options(self) -> dict[str, str]:
        server = self._endpoint
        host, port = self.ground.doors.get("mariadb", (server.host, server.port))
        return {
            "connector": "mysql",
            "host": host,
            "port": str(port),
            "database": self.ground.name,
            "user": server.user,
            "password": server.password,
            # So that the wire can be read.
            "ssl_mode": "disabled",
            "table": self.kind,
            # A writer that was stopped keeps others waiting for no longer than this.
            "idle_timeout": "3s",
            "statement_timeout": "20s",
            **WRITES[self.view],
        }

    def is_commit(self, request: bytes) -> bool:
        return is_mysql_commit(request)

    def ledger(self) -> int:
        found = self._ask(
            "SELECT epoch FROM _laminar_ledger WHERE pipeline = %s AND sink = %s",
            self.ground.name,
            self.kind,
        )
        return int(found[0][0]) if found else 0

    def rows(self) -> Rows:
        return Counter(self._ask(f"SELECT {', '.join(COLUMNS[self.view])} FROM {self.kind}"))

    @property
    def _endpoint(self) -> MysqlEndpoint:
        endpoint = self.ground.servers["mariadb"]
        assert isinstance(endpoint, MysqlEndpoint)
        return endpoint

    def _ask(
        self, statement: str, *values: str, database: str | None = ""
    ) -> list[tuple[Any, ...]]:
        inside = self.ground.name if database == "" else database
        with closing(self._endpoint.connect(inside)) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(statement, values or None)
            except pymysql.err.ProgrammingError as error:
                if error.args[0] != ER.NO_SUCH_TABLE:
                    raise
                return []
            return list(cursor.fetchall())

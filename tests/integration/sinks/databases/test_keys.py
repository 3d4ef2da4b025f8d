"""Tables on servers put rows of every kind of key as a dictionary does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import PostgresEndpoint
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.ports import Sink
from laminar_dagster.testing.sink_keys import Key, KeyContract, KeyKind, KeyPlace
from tests.integration.sinks.databases.mysql_place import (
    GenuineMysqlPlace,
    MariadbPlace,
    MysqlPlace,
)
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.services import mariadb, postgres
from tests.unit.sinks.key_values import NO_KEYS, as_view_has

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class DatabaseKeyPlace:
    """A table of a database, of a sink of its own."""

    database: DatabasePlace
    table: str

    @classmethod
    def new(cls, database: DatabasePlace) -> DatabaseKeyPlace:
        """One that nobody else has."""
        return cls(database, f"t{uuid.uuid4().hex}")

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        return self.database.sink(self.table, sink_id=SinkId(self.table), mode="upsert", key=key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        if self.table not in self.database.relations():
            return []
        columns = ", ".join([*kind.columns, "value"])
        rows = self.database.query(f"SELECT {columns} FROM {self.table}")
        return [(as_view_has(kind, row[:-1]), row[-1]) for row in rows]


class DatabaseKeys(KeyContract):
    """On one database for all kinds: to make one takes longer than to fill it."""

    looks_after_every_epoch = False
    refused: ClassVar[Mapping[str, str]] = NO_KEYS


TOO_FINE = "MySQL keeps at most 65 digits, 30 of them after the point"


class MysqlKeys(DatabaseKeys):
    """What either server of MySQL's kind takes."""

    refused: ClassVar[Mapping[str, str]] = {
        **NO_KEYS,
        "decimal(38,37)": TOO_FINE,
        "decimal(38,38)": TOO_FINE,
    }


@pytest.fixture(scope="module")
def keys_on_postgres(postgres_service: PostgresEndpoint) -> Iterator[DatabasePlace]:
    with postgres.database_on(postgres_service) as name:
        yield PostgresPlace(postgres_service, name)


@pytest.fixture(scope="module")
def keys_on_mariadb(mariadb_service: MysqlEndpoint) -> Iterator[MysqlPlace]:
    with mariadb.database_on(mariadb_service) as name:
        yield MariadbPlace(mariadb_service, name)


@pytest.fixture(scope="module")
def keys_on_mysql(mysql_service: MysqlEndpoint) -> Iterator[MysqlPlace]:
    with mariadb.database_on(mysql_service) as name:
        yield GenuineMysqlPlace(mysql_service, name)


@pytest.mark.service("postgres")
class TestPostgresKeys(DatabaseKeys):
    @pytest.fixture
    def key_place(self, keys_on_postgres: DatabasePlace) -> KeyPlace:
        return DatabaseKeyPlace.new(keys_on_postgres)


@pytest.mark.service("mariadb")
class TestStreamingMariadbKeys(MysqlKeys):
    @pytest.fixture
    def key_place(self, keys_on_mariadb: MysqlPlace) -> KeyPlace:
        return DatabaseKeyPlace.new(keys_on_mariadb)


@pytest.mark.service("mariadb")
class TestInsertingMariadbKeys(MysqlKeys):
    @pytest.fixture
    def key_place(self, keys_on_mariadb: MysqlPlace) -> KeyPlace:
        return DatabaseKeyPlace.new(replace(keys_on_mariadb, bulk=False))


@pytest.mark.service("mysql")
@pytest.mark.every_server
class TestMysqlKeys(MysqlKeys):
    @pytest.fixture
    def key_place(self, keys_on_mysql: MysqlPlace) -> KeyPlace:
        return DatabaseKeyPlace.new(keys_on_mysql)

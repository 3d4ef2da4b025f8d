"""Databases of a test's own, by every way into them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import Postgres, PostgresEndpoint
from tests.integration.sinks.databases.mysql_place import (
    GenuineMysqlPlace,
    MariadbPlace,
    MysqlPlace,
)
from tests.integration.sinks.databases.own_server import OwnServer
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.integration.sinks.databases.servers import (
    ALL_SERVERS,
    EITHER_WAY,
    EVERY_SERVER,
    EVERY_WAY,
    MYSQL_SERVERS,
    is_left_out,
    on,
)
from tests.services import mariadb, mysql, postgres
from tests.services.faulty_wire import FaultyWire, WireFactory


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is to be asked for; see ``servers``."""
    if os.environ.get(EVERY_SERVER) == "1":
        return
    folder = Path(__file__).parent
    left_out = [each for each in items if each.path.parent == folder and is_left_out(each)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        unwanted = {*left_out}
        items[:] = [each for each in items if each not in unwanted]


@pytest.fixture
def postgres_place(postgres_service: PostgresEndpoint, postgres_database: str) -> PostgresPlace:
    return PostgresPlace(postgres_service, postgres_database)


@pytest.fixture
def mariadb_place(mariadb_service: MysqlEndpoint, mariadb_database: str) -> MysqlPlace:
    return MariadbPlace(mariadb_service, mariadb_database)


@pytest.fixture
def inserting_mariadb_place(mariadb_place: MysqlPlace) -> MysqlPlace:
    return replace(mariadb_place, bulk=False)


@pytest.fixture
def mysql_place(mysql_service: MysqlEndpoint, mysql_database: str) -> MysqlPlace:
    return GenuineMysqlPlace(mysql_service, mysql_database)


@pytest.fixture
def inserting_mysql_place(mysql_place: MysqlPlace) -> MysqlPlace:
    return replace(mysql_place, bulk=False)


@pytest.fixture(params=on(*ALL_SERVERS))
def place(request: pytest.FixtureRequest) -> DatabasePlace:
    """A database on each server."""
    found: DatabasePlace = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(params=on(*EVERY_WAY))
def every_way(request: pytest.FixtureRequest) -> DatabasePlace:
    """The same, where it may matter how rows get there."""
    found: DatabasePlace = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(params=on(*EITHER_WAY))
def either_way(request: pytest.FixtureRequest) -> MysqlPlace:
    """MariaDB and MySQL alone, where it may matter how rows get there."""
    found: MysqlPlace = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(params=on(*MYSQL_SERVERS))
def any_mysql(request: pytest.FixtureRequest) -> MysqlPlace:
    """MariaDB and MySQL alone, where it does not."""
    found: MysqlPlace = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture
def lone_postgres_place(postgres_place: PostgresPlace) -> PostgresPlace:
    """What is set there is the database's."""
    return postgres_place


@pytest.fixture
def lone_mariadb_place(mariadb_log_service: MysqlEndpoint) -> Iterator[MysqlPlace]:
    with mariadb.database_on(mariadb_log_service) as name:
        place = MariadbPlace(mariadb_log_service, name)
        # A sink refuses a log that a crash of the machine cuts off.
        with place.with_global("sync_binlog", 1, 0):
            yield place


@pytest.fixture
def lone_mysql_place(mysql_log_service: MysqlEndpoint) -> Iterator[MysqlPlace]:
    with mariadb.database_on(mysql_log_service) as name:
        yield GenuineMysqlPlace(mysql_log_service, name)


@pytest.fixture(params=on(*ALL_SERVERS))
def lone_place(request: pytest.FixtureRequest) -> DatabasePlace:
    """A database on each server, where settings concern no other process's tests."""
    found: DatabasePlace = request.getfixturevalue(f"lone_{request.param}_place")
    return found


@pytest.fixture(params=on(*MYSQL_SERVERS))
def any_lone_mysql(request: pytest.FixtureRequest) -> MysqlPlace:
    """MariaDB and MySQL alone, where settings concern no other process's tests."""
    found: MysqlPlace = request.getfixturevalue(f"lone_{request.param}_place")
    return found


@pytest.fixture
def wire(faulty_wire: WireFactory, place: DatabasePlace) -> FaultyWire:
    """A way to the server that fails on command."""
    return faulty_wire(place.endpoint.host, place.endpoint.port)


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[OwnServer[DatabasePlace]]:
    with Postgres(postgres.WITHOUT_SYNC) as server:
        yield OwnServer(server, tmp_path / "postgres", _on_postgres)


@pytest.fixture
def own_mariadb(tmp_path: Path) -> Iterator[OwnServer[DatabasePlace]]:
    with Mariadb(mariadb.WITHOUT_SYNC) as server:
        yield OwnServer(server, tmp_path / "mariadb", _on_mariadb)


@pytest.fixture
def own_mysql(tmp_path: Path) -> Iterator[OwnServer[DatabasePlace]]:
    with Mysql({**mysql.WITHOUT_SYNC, **mysql.WITH_STREAMS}) as server:
        yield OwnServer(server, tmp_path / "mysql", _on_mysql)


@pytest.fixture(params=on(*ALL_SERVERS))
def own_server(request: pytest.FixtureRequest) -> OwnServer[DatabasePlace]:
    """A server that no other test uses."""
    found: OwnServer[DatabasePlace] = request.getfixturevalue(f"own_{request.param}")
    return found


def _on_postgres(endpoint: PostgresEndpoint) -> DatabasePlace:
    return PostgresPlace(endpoint, endpoint.database)


def _on_mariadb(endpoint: MysqlEndpoint) -> DatabasePlace:
    return MariadbPlace(endpoint, endpoint.database)


def _on_mysql(endpoint: MysqlEndpoint) -> DatabasePlace:
    return GenuineMysqlPlace(endpoint, endpoint.database)


@pytest.fixture
def clerk(place: DatabasePlace) -> Iterator[DatabasePlace]:
    """The database, and an account in it that owns nothing and may do nothing."""
    place.make_clerk()
    yield place
    place.drop_clerk()

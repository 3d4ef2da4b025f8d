"""Databases of a test's own, by every way into them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.mariadb import Mariadb, MariadbEndpoint
from infra.postgres import Postgres, PostgresEndpoint
from tests.integration.sinks.databases.mysql_place import MysqlPlace
from tests.integration.sinks.databases.own_server import OwnServer
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.integration.sinks.databases.servers import BOTH_SERVERS, EITHER_WAY, EVERY_WAY, on
from tests.services import mariadb, postgres
from tests.services.faulty_wire import FaultyWire, WireFactory


@pytest.fixture
def postgres_place(postgres_service: PostgresEndpoint, postgres_database: str) -> PostgresPlace:
    return PostgresPlace(postgres_service, postgres_database)


@pytest.fixture
def mysql_place(mariadb_service: MariadbEndpoint, mariadb_database: str) -> MysqlPlace:
    return MysqlPlace(mariadb_service, mariadb_database)


@pytest.fixture
def inserting_mysql_place(mariadb_service: MariadbEndpoint, mariadb_database: str) -> MysqlPlace:
    return MysqlPlace(mariadb_service, mariadb_database, bulk=False)


@pytest.fixture(params=on(*BOTH_SERVERS))
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
    """MySQL alone, where it may matter how rows get there."""
    found: MysqlPlace = request.getfixturevalue(f"{request.param}_place")
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
def own_mysql(tmp_path: Path) -> Iterator[OwnServer[DatabasePlace]]:
    with Mariadb(mariadb.WITHOUT_SYNC) as server:
        yield OwnServer(server, tmp_path / "mariadb", _on_mysql)


@pytest.fixture(params=on(*BOTH_SERVERS))
def own_server(request: pytest.FixtureRequest) -> OwnServer[DatabasePlace]:
    """A server that no other test uses."""
    found: OwnServer[DatabasePlace] = request.getfixturevalue(f"own_{request.param}")
    return found


def _on_postgres(endpoint: PostgresEndpoint) -> DatabasePlace:
    return PostgresPlace(endpoint, endpoint.database)


def _on_mysql(endpoint: MariadbEndpoint) -> DatabasePlace:
    return MysqlPlace(endpoint, endpoint.database)


@pytest.fixture
def clerk(place: DatabasePlace) -> Iterator[DatabasePlace]:
    """The database, and an account in it that owns nothing and may do nothing."""
    place.make_clerk()
    yield place
    place.drop_clerk()

"""A database on each server that tells its changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import PostgresEndpoint
from tests.integration.changes.captured import CapturedDatabase, CapturedMysql, CapturedPostgres
from tests.integration.postgres.tables import Tables
from tests.services.mariadb import database_on

SERVERS = [
    pytest.param(name, marks=pytest.mark.service(name)) for name in ("postgres", "mariadb", "mysql")
]


@pytest.fixture
def captured_postgres(
    postgres_service: PostgresEndpoint, postgres_database: str
) -> CapturedPostgres:
    return CapturedPostgres(Tables(postgres_service, postgres_database))


@pytest.fixture
def captured_mariadb(mariadb_log_service: MysqlEndpoint) -> Iterator[CapturedDatabase]:
    with database_on(mariadb_log_service) as name:
        yield CapturedMysql(mariadb_log_service, name)


@pytest.fixture
def captured_mysql(mysql_log_service: MysqlEndpoint) -> Iterator[CapturedDatabase]:
    with database_on(mysql_log_service) as name:
        yield CapturedMysql(mysql_log_service, name)


@pytest.fixture(params=SERVERS)
def captured(request: pytest.FixtureRequest) -> CapturedDatabase:
    """Each of them in turn."""
    found: CapturedDatabase = request.getfixturevalue(f"captured_{request.param}")
    return found

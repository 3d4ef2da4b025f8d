"""The sinks on database servers keep the contract, whichever way they send rows."""

from __future__ import annotations

import pytest

from laminar_dagster.testing.sink_contract import SinkContract, SinkPlace
from tests.integration.sinks.databases.mysql_place import MysqlPlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace

pytestmark = pytest.mark.slow


@pytest.mark.service("postgres")
class TestPostgres(SinkContract):
    @pytest.fixture
    def place(self, postgres_place: PostgresPlace) -> SinkPlace:
        return postgres_place


@pytest.mark.service("mariadb")
class TestStreamingMariadb(SinkContract):
    kills = 10

    @pytest.fixture
    def place(self, mariadb_place: MysqlPlace) -> SinkPlace:
        return mariadb_place


@pytest.mark.service("mariadb")
class TestInsertingMariadb(SinkContract):
    kills = 6

    @pytest.fixture
    def place(self, inserting_mariadb_place: MysqlPlace) -> SinkPlace:
        return inserting_mariadb_place


@pytest.mark.service("mysql")
@pytest.mark.every_server
class TestStreamingMysql(SinkContract):
    """MySQL's own server, and not MariaDB's."""

    kills = 4

    @pytest.fixture
    def place(self, mysql_place: MysqlPlace) -> SinkPlace:
        return mysql_place


@pytest.mark.service("mysql")
@pytest.mark.every_server
class TestInsertingMysql(SinkContract):
    kills = 4

    @pytest.fixture
    def place(self, inserting_mysql_place: MysqlPlace) -> SinkPlace:
        return inserting_mysql_place

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
class TestStreamingMysql(SinkContract):
    kills = 10

    @pytest.fixture
    def place(self, mysql_place: MysqlPlace) -> SinkPlace:
        return mysql_place


@pytest.mark.service("mariadb")
class TestInsertingMysql(SinkContract):
    kills = 6

    @pytest.fixture
    def place(self, inserting_mysql_place: MysqlPlace) -> SinkPlace:
        return inserting_mysql_place

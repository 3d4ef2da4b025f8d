"""Fixtures for a real MySQL server: `mysql_service`, and `mysql_database` in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from tests.services.mariadb import LOG_OF_ROWS, database_on

# A server that is killed loses nothing by it; only a power cut would show the difference.
WITHOUT_SYNC = {"innodb-flush-method": "nosync", "innodb-doublewrite": "OFF"}
# By default, MySQL forbids LOAD DATA LOCAL.
WITH_STREAMS = {"local-infile": "ON"}


@pytest.fixture(scope="session")
def mysql_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlEndpoint]:
    """One server per test process. It keeps a log, as MySQL does by default, and takes streams."""
    with Mysql({**WITHOUT_SYNC, **WITH_STREAMS, **LOG_OF_ROWS}) as server:
        yield server.start(tmp_path_factory.mktemp("mysql"))


@pytest.fixture
def mysql_database(mysql_service: MysqlEndpoint) -> Iterator[str]:
    """The name of an empty database that no other test uses; removed with all who are in it."""
    with database_on(mysql_service) as name:
        yield name

"""Fixtures for a real MariaDB server: `mariadb_service`, and `mariadb_database` in it.

`mariadb_log_service` is another one, that keeps a binary log, for the tests of one process alone:
there is one log for all databases of a server, and a copy locks them all for a moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import pymysql
import pytest

from infra.mariadb import Mariadb
from infra.mysql_endpoint import MysqlEndpoint
from tests.services.sharing import Services

# A server that is killed loses nothing by it; only a power cut would show the difference.
WITHOUT_SYNC = {"innodb-flush-method": "nosync"}
# For the tests of several processes at a time.
WITH_ROOM = {"max-connections": "600"}
# As a source of changes needs it.
LOG_OF_ROWS = {
    "log-bin": "binlog",
    "server-id": "77",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
}


@pytest.fixture(scope="session")
def mariadb_service(services: Services) -> MysqlEndpoint:
    """One server per run. Its settings are everybody's."""
    return services.endpoint("mariadb", partial(Mariadb, {**WITHOUT_SYNC, **WITH_ROOM}))


@pytest.fixture
def mariadb_database(mariadb_service: MysqlEndpoint) -> Iterator[str]:
    """The name of an empty database that no other test uses; removed with all who are in it."""
    with database_on(mariadb_service) as name:
        yield name


@pytest.fixture(scope="session")
def mariadb_log_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlEndpoint]:
    """One server per test process. It keeps a log of rows; a test may reset or reconfigure it."""
    with Mariadb({**WITHOUT_SYNC, **LOG_OF_ROWS}) as server:
        yield server.start(tmp_path_factory.mktemp("mariadb_log"))


@contextmanager
def database_on(server: MysqlEndpoint) -> Iterator[str]:
    """A database of a new name on a server, for a while."""
    name = f"test_{uuid.uuid4().hex}"
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        yield name
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
        for (session,) in cursor.fetchall():
            # It may have gone by itself.
            with suppress(pymysql.Error):
                cursor.execute("KILL %s", (session,))
        cursor.execute(f"DROP DATABASE {name}")

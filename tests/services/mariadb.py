"""Fixtures for a real MariaDB server: `mariadb_service`, and `mariadb_database` in it.

`mariadb_log_service` is another one, that keeps a binary log.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pymysql
import pytest

from infra.mariadb import Mariadb
from infra.mysql_endpoint import MysqlEndpoint

# A server that is killed loses nothing by it; only a power cut would show the difference.
WITHOUT_SYNC = {"innodb-flush-method": "nosync"}
# As a source of changes needs it.
LOG_OF_ROWS = {
    "log-bin": "binlog",
    "server-id": "77",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
}


@pytest.fixture(scope="session")
def mariadb_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlEndpoint]:
    """One server per test process."""
    with Mariadb(WITHOUT_SYNC) as server:
        yield server.start(tmp_path_factory.mktemp("mariadb"))


@pytest.fixture
def mariadb_database(mariadb_service: MysqlEndpoint) -> Iterator[str]:
    """The name of an empty database that no other test uses; removed with all who are in it."""
    with database_on(mariadb_service) as name:
        yield name


@pytest.fixture(scope="session")
def mariadb_log_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlEndpoint]:
    """One server per test process that keeps a log of rows. Nobody else writes to it."""
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

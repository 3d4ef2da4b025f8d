"""Fixtures for a real MySQL server: `mysql_service`, and `mysql_database` in it.

`mysql_log_service` is another one, whose log is a source's, for the tests of one process alone; see
`tests.services.mariadb`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from tests.services.mariadb import LOG_OF_ROWS, WITH_ROOM, database_on
from tests.services.sharing import Services

# A server that is killed loses nothing by it; only a power cut would show the difference.
WITHOUT_SYNC = {"innodb-flush-method": "nosync", "innodb-doublewrite": "OFF"}
# By default, MySQL forbids LOAD DATA LOCAL.
WITH_STREAMS = {"local-infile": "ON"}


# It keeps a log, as MySQL does by default, and takes streams.
_SETTINGS = {**WITHOUT_SYNC, **WITH_STREAMS, **LOG_OF_ROWS}


@pytest.fixture(scope="session")
def mysql_service(services: Services) -> MysqlEndpoint:
    """One server per run. Its settings are everybody's."""
    return services.endpoint("mysql", partial(Mysql, {**_SETTINGS, **WITH_ROOM}))


@pytest.fixture(scope="session")
def mysql_log_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlEndpoint]:
    """One server per test process. A test may reset its log, or reconfigure it."""
    with Mysql(_SETTINGS) as server:
        yield server.start(tmp_path_factory.mktemp("mysql_log"))


@pytest.fixture
def mysql_database(mysql_service: MysqlEndpoint) -> Iterator[str]:
    """The name of an empty database that no other test uses; removed with all who are in it."""
    with database_on(mysql_service) as name:
        yield name

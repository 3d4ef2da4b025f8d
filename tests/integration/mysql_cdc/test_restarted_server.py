"""A server that is killed in the middle of a transaction, and comes back on another port."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from infra.database import DatabaseServer
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.core.errors import SourceUnavailable
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.sinks.databases.own_server import OwnServer
from tests.services import mariadb, mysql
from tests.services.mariadb import LOG_OF_ROWS

# A header, a number and a checksum.
_XID_SIZE: Final = 19 + 8 + 4


OWN = pytest.mark.parametrize(
    "own",
    [
        pytest.param(
            lambda: Mariadb({**mariadb.WITHOUT_SYNC, **LOG_OF_ROWS}),
            id="mariadb",
            marks=pytest.mark.service("mariadb"),
        ),
        pytest.param(
            lambda: Mysql({**mysql.WITHOUT_SYNC, **LOG_OF_ROWS}),
            id="mysql",
            marks=pytest.mark.service("mysql"),
        ),
    ],
)


@OWN
def test_a_killed_server_goes_on_in_another_file(
    own: Callable[[], DatabaseServer[MysqlEndpoint]], tmp_path: Path
) -> None:
    with own() as service:
        server = OwnServer(service, tmp_path, lambda endpoint: Shop(endpoint, "laminar"))
        shop = server.start()
        shop.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(100))")
        shop.plan()
        shop.insert([(key, "x" * 80) for key in range(1000)])
        plan = shop.plan()
        shop.insert([(2000, "committed")])
        shop.run("BEGIN", "INSERT INTO orders VALUES (3000, 'not committed')")
        server.kill()
        with pytest.raises(SourceUnavailable):
            shop.read(plan)
        again = server.restart()
        again.keeper, again.plans = shop.keeper, shop.plans
        assert again.read(plan).num_rows == 1000
        again.insert([(4000, "afterwards")])
        assert [row["id"] for row in again.catch_up()] == [2000, 4000]
        assert again.source().health(again.ends).total_lag == 0
        again.close()


@OWN
def test_a_transaction_that_a_dead_server_left_without_an_end(
    own: Callable[[], DatabaseServer[MysqlEndpoint]], tmp_path: Path
) -> None:
    """It was not committed. MySQL cuts it off when it starts again, MariaDB leaves it there."""
    with own() as service:
        server = OwnServer(service, tmp_path, lambda endpoint: Shop(endpoint, "laminar"))
        shop = server.start()
        shop.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(100))")
        shop.plan()
        shop.insert([(1, "whole")])
        file, whole = shop.log_end()
        shop.insert([(666, "half"), (667, "half")])
        _, end = shop.log_end()
        server.kill()
        # All but the event that ends it, as if the server had died before it was written.
        os.truncate(shop.endpoint.data / file, end - _XID_SIZE)
        again = server.restart()
        again.keeper, again.plans = shop.keeper, shop.plans
        size = dict(row[:2] for row in again.run("SHOW BINARY LOGS"))[file]
        assert size == whole if again.is_mysql else size > whole
        again.insert([(2, "afterwards")])
        assert [row["id"] for row in again.catch_up()] == [1, 2]
        again.close()

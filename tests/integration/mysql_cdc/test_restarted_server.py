"""A server that is killed in the middle of a transaction, and comes back on another port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.parametrize(
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

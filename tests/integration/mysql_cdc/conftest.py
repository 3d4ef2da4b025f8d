"""A database on each server that keeps a log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from infra.mysql_endpoint import MysqlEndpoint
from tests.integration.mysql_cdc.shop import Shop

ShopFactory = Callable[..., Shop]


# The service, and the fixture that has it.
SERVERS = [
    pytest.param(fixture, marks=pytest.mark.service(name), id=name)
    for name, fixture in (("mariadb", "mariadb_log_service"), ("mysql", "mysql_log_service"))
]


@pytest.fixture(params=SERVERS)
def log_server(request: pytest.FixtureRequest) -> MysqlEndpoint:
    """Each server in turn."""
    found: MysqlEndpoint = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def shop_with(log_server: MysqlEndpoint) -> Iterator[ShopFactory]:
    """Opens a shop whose table has some columns; removes it afterwards."""
    name = f"shop_{uuid.uuid4().hex[:12]}"
    opened: list[Shop] = []
    with closing(log_server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

        def open_shop(columns: str, **rest: Any) -> Shop:
            shop = Shop(log_server, name, **rest)
            opened.append(shop)
            shop.run(f"CREATE TABLE {shop.table} ({columns})")
            return shop

        yield open_shop
        for shop in opened:
            shop.close()
        cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def shop(shop_with: ShopFactory) -> Shop:
    """Orders with an id and a name, none of them yet."""
    return shop_with("id BIGINT PRIMARY KEY, name VARCHAR(100)")

"""A database on the server that keeps a log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from infra.mariadb import MariadbEndpoint
from tests.integration.mysql_cdc.shop import Shop

ShopFactory = Callable[..., Shop]


@pytest.fixture
def shop_with(mariadb_log_service: MariadbEndpoint) -> Iterator[ShopFactory]:
    """Opens a shop whose table has some columns; removes it afterwards."""
    name = f"shop_{uuid.uuid4().hex[:12]}"
    opened: list[Shop] = []
    with closing(mariadb_log_service.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

        def open_shop(columns: str, **rest: Any) -> Shop:
            shop = Shop(mariadb_log_service, name, **rest)
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

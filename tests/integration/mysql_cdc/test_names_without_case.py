"""Servers that do not tell tables apart by the case of their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from infra.database import DatabaseServer
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.core.errors import InvalidConfig, TableChanged
from tests.integration.mysql_cdc.shop import COLUMNS, Shop
from tests.services import mariadb, mysql
from tests.services.mariadb import LOG_OF_ROWS

SETTINGS = {**LOG_OF_ROWS, "lower-case-table-names": "1"}


@pytest.mark.parametrize(
    "own",
    [
        pytest.param(
            lambda: Mariadb({**mariadb.WITHOUT_SYNC, **SETTINGS}),
            id="mariadb",
            marks=pytest.mark.service("mariadb"),
        ),
        pytest.param(
            lambda: Mysql({**mysql.WITHOUT_SYNC, **SETTINGS}),
            id="mysql",
            marks=pytest.mark.service("mysql"),
        ),
    ],
)
def test_a_table_may_be_declared_in_any_case(
    own: Callable[[], DatabaseServer[MysqlEndpoint]], tmp_path: Path
) -> None:
    with own() as service:
        schema = pa.schema([*COLUMNS, pa.field("_table", pa.string())])
        shop = Shop(service.start(tmp_path), "Laminar", schema=schema, table="Orders")
        shop.run("CREATE TABLE ORDERS (id BIGINT PRIMARY KEY, name VARCHAR(100))")
        shop.insert([(1, "a")])
        found = shop.epoch()
        shop.run("UPDATE orders SET name = 'b'")
        found += shop.epoch()
        assert [(row["name"], row["_weight"]) for row in found] == [("a", 1), ("a", -1), ("b", 1)]
        # As it was declared, in the copy and in the changes.
        assert {row["_table"] for row in found} == {"Laminar.Orders"}
        assert shop.source().health(shop.ends).healthy

        twice = (("Laminar", "Orders"), ("laminar", "ORDERS"))
        other = Shop(shop.endpoint, "laminar", options={"tables": twice})
        with pytest.raises(InvalidConfig, match="the same table"):
            other.plan()
        assert "the same table" in other.source().health(()).message
        other.close()

        shop.run("DROP DATABASE laminar", "CREATE DATABASE laminar")
        with pytest.raises(TableChanged, match="dropped"):
            shop.plan()
        shop.close()


def test_elsewhere_a_name_in_another_case_is_another_table(shop: Shop) -> None:
    shop.table = "ORDERS"
    with pytest.raises(InvalidConfig, match="there is no table"):
        shop.plan()
    shop.run("CREATE TABLE ORDERS LIKE orders")
    shop.plan()
    shop.run("INSERT INTO orders VALUES (1, 'a')")
    shop.insert([(2, "b")])
    assert [row["id"] for row in shop.epoch()] == [2]

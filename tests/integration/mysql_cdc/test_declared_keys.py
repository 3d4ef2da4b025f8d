"""A PRIMARY KEY that a source declares is one that the server keeps, or the source is refused."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.mysql_cdc.conftest import ShopFactory

COLUMNS = "id BIGINT NOT NULL, name VARCHAR(100), part INT NOT NULL"


@pytest.mark.parametrize("definition", ["PRIMARY KEY (ID)", "UNIQUE (part, id)", "UNIQUE (id)"])
def test_a_key_that_the_table_has(shop_with: ShopFactory, definition: str) -> None:
    shop = shop_with(f"{COLUMNS}, {definition}", options={"key": ("id", "part")})
    shop.run("INSERT INTO orders VALUES (1, 'a', 2)")
    assert [row["id"] for row in shop.epoch()] == [1]


@pytest.mark.parametrize("definition", ["KEY (id)", "PRIMARY KEY (id, part)", "UNIQUE (id, name)"])
def test_a_key_that_the_table_does_not_have(shop_with: ShopFactory, definition: str) -> None:
    key = ("id", "name") if "name" in definition else ("id",)
    shop = shop_with(f"{COLUMNS}, {definition}", options={"key": key})
    with pytest.raises(InvalidConfig, match=r"does not keep .* unique in table"):
        shop.plan()


def test_a_key_that_is_dropped_is_missed_before_the_next_epoch(shop_with: ShopFactory) -> None:
    shop = shop_with(f"{COLUMNS}, PRIMARY KEY (id)", options={"key": ("id",)})
    shop.run("INSERT INTO orders VALUES (1, 'a', 2)")
    assert len(shop.epoch()) == 1
    shop.run("ALTER TABLE orders DROP PRIMARY KEY", "INSERT INTO orders VALUES (1, 'b', 2)")
    with pytest.raises(InvalidConfig, match=r"does not keep \(id\) unique in table"):
        shop.plan()

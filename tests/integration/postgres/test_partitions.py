"""A partitioned table, read as one: its copy, its changes, rows that move between partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.postgres.tables import Reading, Tables

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!", "name": "string"}


@pytest.fixture
def orders(tables: Tables) -> Tables:
    """Orders in two partitions, one of them in partitions itself."""
    tables.run(
        "CREATE TABLE orders (id bigint, name text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (100) TO (1000)"
        " PARTITION BY RANGE (id)",
        "CREATE TABLE highest PARTITION OF high FOR VALUES FROM (100) TO (1000)",
        "INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 200, 50) AS n",
    )
    return tables


def test_it_is_published_as_a_whole_or_refused(orders: Tables) -> None:
    source = orders.source(COLUMNS, tables="orders", before="required")
    with pytest.raises(InvalidConfig) as caught:
        Reading(source).plan()
    told = f"{caught.value} {caught.value.advice()}"
    assert "SET (publish_via_partition_root)" in told
    assert "ALTER TABLE public.orders, and each of its partitions, REPLICA IDENTITY FULL" in told
    # Of the root alone it says nothing of what the partitions send.
    orders.run(
        'ALTER PUBLICATION "all" SET (publish_via_partition_root)',
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "ALTER TABLE low REPLICA IDENTITY FULL",
    )
    with pytest.raises(InvalidConfig, match="does not send whole rows"):
        Reading(source).plan()
    orders.run("ALTER TABLE highest REPLICA IDENTITY FULL")
    assert len(Reading(source).rows()) == 4


def test_changes_come_under_the_name_of_the_whole(orders: Tables) -> None:
    orders.run(
        'ALTER PUBLICATION "all" SET (publish_via_partition_root)',
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "ALTER TABLE low REPLICA IDENTITY FULL",
        "ALTER TABLE highest REPLICA IDENTITY FULL",
    )
    options = {"before": "required", "include__metadata": "true"}
    reading = Reading(orders.source(COLUMNS, tables="orders", **options))
    found = reading.rows()
    assert [row["_op"] for row in found] == ["r"] * 4
    orders.run(
        "INSERT INTO orders VALUES (7, 'new'), (700, 'new')",
        # From one partition to the other: to the log it is a delete and an insert.
        "UPDATE orders SET id = id + 100 WHERE id = 7",
        "UPDATE orders SET name = 'changed' WHERE id > 100",
        "DELETE FROM orders WHERE id = 1",
        "CREATE TABLE topmost PARTITION OF orders FOR VALUES FROM (1000) TO (2000)",
        "ALTER TABLE topmost REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1500, 'in a new one')",
    )
    found += reading.rows()
    assert {row["_table"] for row in found} == {"public.orders"}
    total: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        total[row["id"], row["name"]] += row["_weight"]
    assert +total == Counter(orders.fetch("SELECT id, name FROM orders"))
    assert all(count >= 0 for count in total.values())

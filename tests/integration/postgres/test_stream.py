"""What the stream of a real server becomes: rows, weights, types, whole transactions."""

from __future__ import annotations

import pytest

from tests.integration.postgres.tables import Reading, Tables, bad_of, rows_of

pytestmark = pytest.mark.service("postgres")

ORDERS = {"id": "bigint!", "name": "string"}


def images(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(row["id"], row["name"], row["_weight"]) for row in rows]


def test_a_snapshot_then_every_change(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 'a'), (2, NULL)",
    )
    reading = Reading(tables.source(ORDERS, tables="orders", include__metadata="true"))
    rows = reading.rows()
    assert images(rows) == [(1, "a", 1), (2, None, 1)]
    assert {(row["_op"], row["_table"]) for row in rows} == {("r", "public.orders")}
    assert reading.rows() == []
    tables.run(
        "INSERT INTO orders VALUES (3, 'c')",
        "UPDATE orders SET name = 'b' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
    )
    rows = reading.rows()
    assert images(rows) == [(3, "c", 1), (2, None, -1), (2, "b", 1), (1, "a", -1)]
    assert [row["_op"] for row in rows] == ["c", "u", "u", "d"]
    assert reading.rows() == []

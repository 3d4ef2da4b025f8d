"""The same changes on every server, and as Debezium tells them: the same rows, ``_op`` included."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import PostgresEndpoint
from laminar_dagster.sources.formats.debezium import DebeziumDecoder
from laminar_dagster.sources.formats.records import Records
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.postgres.tables import Reading, Tables
from tests.services.mariadb import database_on

pytestmark = pytest.mark.service("postgres", "mariadb", "mysql")

TABLE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2))"
BEFORE = "INSERT INTO orders VALUES (1, 'there already', 1.50)"
CHANGES = (
    "INSERT INTO orders VALUES (2, 'é', 2.00), (3, NULL, NULL)",
    "UPDATE orders SET name = 'other', price = 7.25 WHERE id = 1",
    "UPDATE orders SET id = 9 WHERE id = 3",
    "DELETE FROM orders WHERE id = 2",
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("_op", pa.string()),
        pa.field("_weight", pa.int8()),
    ]
)


def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "price": price}


ENVELOPES: tuple[tuple[str, Any, Any], ...] = (
    ("r", None, row(1, "there already", "1.50")),
    ("c", None, row(2, "é", "2.00")),
    ("c", None, row(3, None, None)),
    ("u", row(1, "there already", "1.50"), row(1, "other", "7.25")),
    ("u", row(3, None, None), row(9, None, None)),
    ("d", row(2, "é", "2.00"), None),
)


def as_debezium_tells_it() -> list[dict[str, Any]]:
    lines = [
        json.dumps({"op": op, "before": before, "after": after}).encode()
        for op, before, after in ENVELOPES
    ]
    sizes = np.array([len(each) for each in lines])
    ends = np.cumsum(sizes + 1) - 1
    records = Records(b"\n".join(lines) + b"\n", ends - sizes, ends, np.arange(len(lines)))
    found = DebeziumDecoder(SCHEMA, decimal_mode="string").decode(records)
    assert found.bad == []
    rows: list[dict[str, Any]] = found.rows.to_pylist()
    return rows


def of_postgres(tables: Tables) -> list[dict[str, Any]]:
    tables.run(TABLE, "ALTER TABLE orders REPLICA IDENTITY FULL", BEFORE)
    columns = {"id": "bigint!", "name": "string", "price": "decimal(10, 2)"}
    reading = Reading(tables.source(columns, tables="orders", before="required"))
    found = reading.rows()
    tables.run(*CHANGES)
    return found + reading.rows()


def of_mysql(endpoint: MysqlEndpoint, database: str) -> list[dict[str, Any]]:
    shop = Shop(endpoint, database, SCHEMA)
    shop.run(TABLE, BEFORE)
    found = shop.epoch()
    shop.run(*CHANGES)
    found += shop.epoch()
    shop.close()
    return found


def test_one_model_runs_on_all_of_them(
    postgres_service: PostgresEndpoint,
    postgres_database: str,
    mysql_log_service: MysqlEndpoint,
    mariadb_log_service: MysqlEndpoint,
) -> None:
    told = as_debezium_tells_it()
    assert [each["_op"] for each in told] == ["r", "c", "c", "u", "u", "u", "u", "d"]
    assert of_postgres(Tables(postgres_service, postgres_database)) == told
    for server in (mysql_log_service, mariadb_log_service):
        with database_on(server) as database:
            assert of_mysql(server, database) == told

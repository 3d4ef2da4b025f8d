"""Tables that are changed while they are read."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from laminar_dagster.core.errors import DecodeFailed, TableChanged
from tests.integration.mysql_cdc.conftest import ShopFactory
from tests.integration.mysql_cdc.shop import Shop


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def test_changes_are_read_by_what_the_table_was_then(shop: Shop) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    shop.run("ALTER TABLE orders ADD COLUMN extra INT NOT NULL DEFAULT 5 FIRST")
    shop.run("INSERT INTO orders (id, name) VALUES (2, 'b')")
    shop.run("ALTER TABLE orders DROP COLUMN extra, MODIFY name VARCHAR(1000)")
    shop.run("ALTER TABLE orders CONVERT TO CHARACTER SET utf16")
    shop.run("UPDATE orders SET name = 'ç' WHERE id = 1")
    assert [tuple(row.values()) for row in shop.epoch()] == [
        (1, "a", 1),
        (2, "b", 1),
        (1, "a", -1),
        (1, "ç", 1),
    ]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("TRUNCATE TABLE orders", "TRUNCATE"),
        ("truncate /* all */ `orders`", "TRUNCATE"),
        ("RENAME TABLE orders TO former", "renamed"),
        ("ALTER TABLE orders RENAME TO former", "renamed"),
        ("CREATE OR REPLACE TABLE orders (id BIGINT PRIMARY KEY, name TEXT)", "replaced"),
        ("DROP TABLE orders", "dropped"),
        ("/*!40000 DROP TABLE orders*/", "dropped"),
        ("ALTER TABLE orders COMMENT = 'a # b', RENAME TO former", "renamed"),
    ],
)
def test_what_takes_rows_away_at_one_stroke_is_refused(
    shop: Shop, statement: str, what: str
) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    if shop.is_mysql and "OR REPLACE" in statement:
        with pytest.raises(pymysql.ProgrammingError):
            shop.run(statement)
        return
    shop.run(statement)
    assert ids(shop.epoch()) == [1]
    for _ in range(2):
        with pytest.raises(TableChanged, match=what) as caught:
            shop.plan()
        assert f"{shop.database}.orders" in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ('TRUNCATE TABLE "orders"', "TRUNCATE"),
        ('RENAME TABLE "orders" TO "former"', "renamed"),
        ('DROP TABLE "orders"', "dropped"),
    ],
)
def test_names_in_double_quotes_are_names_where_the_session_says_so(
    shop: Shop, statement: str, what: str
) -> None:
    shop.plan()
    shop.run("SET SESSION sql_mode = 'ANSI_QUOTES'", statement)
    with pytest.raises(TableChanged, match=what):
        shop.plan()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("MODIFY name VARCHAR(100) CHARACTER SET binary", "bytes"),
        ("MODIFY id SMALLINT", "was integer of 64 bits and is integer of 16 bits"),
        ("DROP COLUMN name", "does not have it"),
        ("RENAME COLUMN name TO label", "does not have it"),
    ],
)
def test_a_column_that_holds_other_values_now_is_refused(
    shop: Shop, change: str, what: str
) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    shop.run(f"ALTER TABLE orders {change}")
    shop.run("DELETE FROM orders WHERE id = 1")
    assert ids(shop.epoch()) == [1]
    with pytest.raises(TableChanged, match=what):
        shop.plan()


def test_an_emptied_table_is_skipped_or_told_of_where_that_was_asked_for(shop: Shop) -> None:
    shop.options["on_truncate"] = "dead_letter"
    shop.plan()
    shop.insert([(1, "a")])
    shop.run("TRUNCATE TABLE orders")
    shop.insert([(2, "b")])
    chunks = list(shop.source().reader().read(shop.plan().ranges[0]))
    assert [row for chunk in chunks for row in chunk.rows.column("id").to_pylist()] == [1, 2]
    (letter,) = [one for chunk in chunks for one in chunk.bad.to_pylist()]
    assert letter["raw"] == b"TRUNCATE TABLE orders"
    shop.options["on_truncate"] = "skip"
    chunks = list(shop.source().reader().read(shop.plans[-1].ranges[0]))
    assert not any(chunk.bad.num_rows for chunk in chunks)


def test_partitions_that_are_dropped(shop_with: ShopFactory) -> None:
    shop = shop_with(
        "id BIGINT PRIMARY KEY, name TEXT) PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN"
        " (100), PARTITION high VALUES LESS THAN (MAXVALUE)"
    )
    shop.plan()
    shop.run("ALTER TABLE orders DROP PARTITION low")
    with pytest.raises(TableChanged, match="partition"):
        shop.plan()


def test_partitions_are_read_as_one_table(shop_with: ShopFactory) -> None:
    shop = shop_with(
        "id BIGINT PRIMARY KEY, name TEXT) PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN"
        " (100), PARTITION high VALUES LESS THAN (MAXVALUE)"
    )
    shop.insert([(1, "a"), (500, "b")])
    found = shop.epoch()
    shop.insert([(2, "c"), (600, "d")])
    shop.run("UPDATE orders SET id = id + 1000 WHERE id = 1", "DELETE FROM orders WHERE id = 500")
    shop.run(
        "ALTER TABLE orders REORGANIZE PARTITION high INTO (PARTITION more VALUES LESS THAN"
        " (900), PARTITION rest VALUES LESS THAN (MAXVALUE))"
    )
    shop.run("UPDATE orders SET name = 'z'")
    found += shop.epoch()
    total = Counter[tuple[int, str]]()
    for row in found:
        total[row["id"], row["name"]] += row["_weight"]
    assert +total == Counter(shop.run("SELECT * FROM orders"))
    assert all(count >= 0 for count in total.values())


def test_rows_written_as_statements_are_refused(shop: Shop) -> None:
    shop.plan()
    shop.run("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO orders VALUES (1, 'a')")
    with pytest.raises(TableChanged, match="binlog_format"):
        shop.plan()


def test_a_file_that_was_loaded_as_a_statement_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.plan()
    rows = tmp_path / "rows.txt"
    rows.write_text("1\ta\n")
    endpoint = shop.endpoint
    with (
        closing(
            pymysql.connect(
                host=endpoint.host,
                port=endpoint.port,
                user=endpoint.user,
                password=endpoint.password,
                database=shop.database,
                autocommit=True,
                ssl_disabled=True,
                local_infile=True,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{rows}' INTO TABLE orders")
    with pytest.raises(TableChanged, match="binlog_format"):
        shop.plan()


@pytest.mark.parametrize("name", ["binlog_row_metadata", "binlog_row_image"])
def test_rows_without_names_and_rows_that_are_not_whole_are_refused(shop: Shop, name: str) -> None:
    shop.plan()
    shop.insert([(1, "a")])
    try:
        shop.run(f"SET GLOBAL {name} = 'MINIMAL'")
        with closing(shop.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE orders SET name = 'b'")
    finally:
        shop.run(f"SET GLOBAL {name} = 'FULL'")
    assert ids(shop.epoch()) == [1]
    with pytest.raises(DecodeFailed, match=name):
        shop.plan()


def test_compressed_transactions_are_not_passed_over_at_the_end_of_a_file(shop: Shop) -> None:
    """Whatever was set when they were written: it has been set back since."""
    shop.plan()
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        if shop.is_mysql:
            cursor.execute("SET SESSION binlog_transaction_compression = ON")
            cursor.execute("INSERT INTO orders VALUES (1, 'a')")
        else:
            try:
                cursor.execute("SET GLOBAL log_bin_compress = ON")
                cursor.execute(f"TRUNCATE TABLE orders /* {'x' * 1000} */")
            finally:
                cursor.execute("SET GLOBAL log_bin_compress = OFF")
    shop.run("FLUSH BINARY LOGS")
    shop.insert([(2, "b")])
    with pytest.raises(DecodeFailed, match="compress"):
        shop.plan()


def test_prepared_transactions_are_refused(shop: Shop) -> None:
    shop.plan()
    shop.run("XA START 'x'", "INSERT INTO orders VALUES (1, 'a')", "XA END 'x'", "XA PREPARE 'x'")
    try:
        with pytest.raises(DecodeFailed, match="XA"):
            shop.plan()
    finally:
        shop.run("XA ROLLBACK 'x'")


def test_changes_that_a_savepoint_took_back(shop: Shop) -> None:
    """They are not in the log, unless MariaDB cannot take back all that stands behind them."""
    shop.run("CREATE TABLE others (id INT)")
    shop.plan()
    undone = "BEGIN", "SAVEPOINT s", "INSERT INTO orders VALUES (666, 'x')", "ROLLBACK TO s"
    shop.run(*undone, "INSERT INTO orders VALUES (1, 'a')", "COMMIT")
    shop.run("BEGIN", "INSERT INTO orders VALUES (2, 'b')", "CREATE TEMPORARY TABLE t (id INT)")
    shop.run("SAVEPOINT s", "INSERT INTO others VALUES (1)", "ROLLBACK TO s", "COMMIT")
    assert ids(shop.epoch()) == [1, 2]
    shop.run("BEGIN", "INSERT INTO orders VALUES (3, 'c')", "CREATE TEMPORARY TABLE u (id INT)")
    shop.run("SAVEPOINT s", "INSERT INTO orders VALUES (667, 'x')", "ROLLBACK TO s", "COMMIT")
    if shop.is_mysql:
        assert ids(shop.epoch()) == [3]
        return
    with pytest.raises(DecodeFailed, match="ROLLBACK TO"):
        shop.plan()


def test_transactions_of_one_phase_are_read_as_any_other(shop: Shop) -> None:
    shop.plan()
    shop.run("XA START 'x'", "INSERT INTO orders VALUES (1, 'a')", "XA END 'x'")
    shop.run("XA COMMIT 'x' ONE PHASE")
    shop.insert([(2, "b")])
    assert ids(shop.epoch()) == [1, 2]


def test_changes_of_other_tables_are_worth_no_epoch(shop: Shop) -> None:
    shop.run("CREATE TABLE others (id INT)")
    first = shop.plan()
    shop.run("INSERT INTO others VALUES (1)", "CREATE TABLE more LIKE orders", "DROP TABLE others")
    assert shop.plan().ranges == first.ranges
    shop.options["quiet_bytes"] = 1
    assert not shop.plan().ranges[0].is_empty
    shop.options["quiet_bytes"] = 2**30
    # Into a new file an epoch follows: the one before may be purged.
    shop.run("FLUSH BINARY LOGS")
    assert not shop.plan().ranges[0].is_empty


def test_several_tables_are_told_apart(shop: Shop) -> None:
    shop.run("CREATE TABLE returns LIKE orders", "INSERT INTO returns VALUES (1, 'back')")
    tables = ((shop.database, "orders"), (shop.database, "returns"))
    shop.options["tables"] = tables
    shop.schema = pa.schema([*shop.schema, pa.field("_table", pa.string())])
    shop.insert([(1, "a")])
    found = shop.epoch()
    assert {row["_table"] for row in found} == {".".join(each) for each in tables}
    shop.run("UPDATE orders, returns SET orders.name = 'b', returns.name = 'c'")
    assert [(row["_table"].split(".")[1], row["name"], row["_weight"]) for row in shop.epoch()] == [
        ("orders", "a", -1),
        ("orders", "b", 1),
        ("returns", "back", -1),
        ("returns", "c", 1),
    ]

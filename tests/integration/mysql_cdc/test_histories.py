"""What was read, added up by weight, is what the table holds: whatever was done to it, and when."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from laminar_dagster.core.offsets import MysqlPosition
from laminar_dagster.core.ports import Admission
from tests.integration.mysql_cdc.conftest import ShopFactory
from tests.integration.mysql_cdc.shop import Shop

COLUMNS = (
    "id BIGINT PRIMARY KEY, name VARCHAR(300), amount DECIMAL(20, 4), note TEXT, at DATETIME(6)"
)
STATEMENTS = (
    "REPLACE INTO orders VALUES (%(key)s, %(text)s, %(amount)s, %(text)s, NOW(6))",
    "INSERT IGNORE INTO orders VALUES (%(key)s, %(text)s, %(amount)s, %(text)s, NULL)",
    "UPDATE orders SET name = %(text)s, amount = amount + 1 WHERE id >= %(key)s",
    "UPDATE IGNORE orders SET id = id + 1000 WHERE id = %(key)s",
    "DELETE FROM orders WHERE id BETWEEN %(key)s AND %(key)s + 3",
    "INSERT INTO others VALUES (%(key)s)",
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.decimal128(20, 4)),
        pa.field("note", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("_op", pa.string()),
        pa.field("_weight", pa.int8()),
    ]
)


def change(shop: Shop, dice: random.Random) -> None:
    """A transaction of a few statements, some of which are undone."""
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        connection.begin()
        for _ in range(dice.randint(1, 6)):
            text = dice.choice([None, "", "é" * dice.randrange(150), "x" * dice.randrange(300)])
            amount = dice.choice([None, dice.randrange(-(10**12), 10**12)])
            values = {"key": dice.randrange(60), "text": text, "amount": amount}
            cursor.execute(dice.choice(STATEMENTS), values)
            if dice.random() < 0.2:
                cursor.execute("SAVEPOINT here")
                cursor.execute("DELETE FROM orders WHERE id < 100")
                cursor.execute("ROLLBACK TO here")
        if dice.random() < 0.2:
            connection.rollback()
        else:
            connection.commit()
        if dice.random() < 0.05:
            cursor.execute("FLUSH BINARY LOGS")


def added_up(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        total[tuple(row[name] for name in SCHEMA.names[:-2])] += row["_weight"]
    assert all(count >= 0 for count in total.values())
    return +total


def live(shop: Shop) -> Counter[tuple[Any, ...]]:
    return Counter(shop.run("SELECT * FROM orders"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_rows_read_make_up_the_table(shop_with: ShopFactory, seed: int) -> None:
    dice = random.Random(seed)
    shop = shop_with(COLUMNS, schema=SCHEMA)
    shop.run("CREATE TABLE others (id BIGINT)")
    for _ in range(20):
        change(shop, dice)
    found: list[dict[str, Any]] = []
    for _ in range(12):
        for _ in range(dice.randrange(8)):
            change(shop, dice)
        limits = dice.choice([Admission(), Admission(max_records=7), Admission(max_bytes=3000)])
        plan = shop.plan(limits)
        rows = shop.read(plan).to_pylist()
        # Another process that reads the plan again, later, reads the same.
        assert shop.read(plan).to_pylist() == rows
        found += rows
    found += shop.catch_up(Admission(max_records=50))
    assert added_up(found) == live(shop)
    assert {row["_op"] for row in found} == {"r", "c", "u", "d"}


# The library names the database to the driver as it should not any more.
@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
def test_the_log_is_read_as_the_library_reads_it(shop_with: ShopFactory) -> None:
    dice = random.Random(9)
    shop = shop_with(COLUMNS, schema=SCHEMA)
    shop.run("CREATE TABLE others (id BIGINT)", "FLUSH BINARY LOGS")
    shop.plan()
    for _ in range(60):
        change(shop, dice)
    plan = shop.plan()
    start = plan.ranges[0].start
    assert isinstance(start, MysqlPosition)
    endpoint = shop.endpoint
    stream = BinLogStreamReader(
        connection_settings={
            "host": endpoint.host,
            "port": endpoint.port,
            "user": endpoint.user,
            "password": endpoint.password,
        },
        server_id=4711,
        resume_stream=True,
        log_file=start.binlog_file,
        log_pos=start.binlog_position,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[shop.database],
        only_tables=["orders"],
    )
    told: list[tuple[str, dict[str, Any]]] = []
    with closing(stream):
        for event in stream:
            for row in event.rows:
                if isinstance(event, UpdateRowsEvent):
                    told += [("u", row["before_values"]), ("u", row["after_values"])]
                else:
                    op = "c" if isinstance(event, WriteRowsEvent) else "d"
                    told.append((op, row["values"]))
    ours = shop.read(plan).to_pylist()
    names = SCHEMA.names[:-2]
    assert [(row["_op"], {name: row[name] for name in names}) for row in ours] == told
    assert len(told) > 100


def test_a_copy_fits_to_the_log_while_others_write(shop_with: ShopFactory) -> None:
    shop = shop_with(COLUMNS, schema=SCHEMA, options={"snapshot_workers": 3})
    shop.run("CREATE TABLE others (id BIGINT)")
    values = ", ".join(f"({key}, 'n{key}', {key}, NULL, NULL)" for key in range(100, 30_000))
    shop.run(f"INSERT INTO orders VALUES {values}")
    is_over = threading.Event()

    def write() -> None:
        dice = random.Random(4)
        while not is_over.is_set():
            change(shop, dice)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        shop.plan(Admission(max_records=10_000))
    finally:
        is_over.set()
        writer.join()
    found = shop.read(shop.plans[0]).to_pylist()
    assert len(found) == 10_000
    found += shop.catch_up()
    assert added_up(found) == live(shop)
    snapshot = shop.keeper.newest()
    assert snapshot is not None
    assert len(snapshot.files) > 1


def test_a_transaction_is_never_cut(shop: Shop) -> None:
    shop.plan()
    shop.insert([(key, "x" * 50) for key in range(2000)])
    shop.insert([(5000, "last")])
    assert len(shop.epoch(Admission(max_records=10))) == 2000
    assert [row["id"] for row in shop.epoch(Admission(max_records=10))] == [5000]


def test_a_row_longer_than_a_packet(shop_with: ShopFactory) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("b", pa.binary()), pa.field("_weight", pa.int8())]
    )
    shop = shop_with("id INT PRIMARY KEY, b LONGBLOB", schema=schema)
    shop.plan()
    shop.run("SET GLOBAL max_allowed_packet = 67108864")
    writer = shop.connect()
    with writer.cursor() as cursor:
        for key in (1, 2):
            cursor.execute("INSERT INTO orders VALUES (%s, REPEAT('ab', 9000000))", (key,))
    writer.close()
    logged = shop.epoch()
    assert [(row["id"], len(row["b"])) for row in logged] == [(1, 18_000_000), (2, 18_000_000)]
    copied = type(shop)(shop.endpoint, shop.database, schema)
    assert copied.epoch() == logged
    copied.close()


def test_the_ids_of_transactions_are_recorded(shop: Shop) -> None:
    """As the server itself names all that it has done up to there."""
    shop.plan()
    shop.insert([(1, "a")])
    if shop.is_mysql:
        shop.run("SET gtid_next = 'AUTOMATIC:some_tag'", "INSERT INTO orders VALUES (2, 'b')")
        shop.run("SET gtid_next = 'AUTOMATIC:a_tag'", "INSERT INTO orders VALUES (3, 'c')")
        shop.run("SET gtid_next = 'AUTOMATIC'")
    shop.insert([(4, "d")])
    end = shop.plan().ranges[0].end
    assert isinstance(end, MysqlPosition)
    name = "gtid_executed" if shop.is_mysql else "gtid_binlog_pos"
    ((known,),) = shop.run(f"SELECT @@GLOBAL.{name}")
    assert end.gtid_set == known.replace("\n", "")
    assert ("some_tag:1" in known) == shop.is_mysql

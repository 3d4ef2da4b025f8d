"""What the stream of a real server becomes: rows, weights, types, whole transactions."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import DecodeFailed, SchemaChanged
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.snapshots import StoredSnapshots
from tests.integration.postgres.tables import SOURCE, Reading, Tables, bad_of, read, rows_of

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


COLUMNS = {
    "id": "bigint!",
    "small": "smallint",
    "number": "int",
    "exact": "decimal(20, 6)",
    "ratio": "double",
    "single": "float",
    "is_good": "boolean",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "raw": "binary",
    "key": "string",
    "document": "string",
    "mood": "string",
    "padded": "string",
    "numbers": "array<int>",
    "words": "array<string>",
    "amounts": "array<decimal(10, 2)>",
    "time": "string",
    "big": "string",
}
MAKE = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so')",
    """
    CREATE TABLE things (
        id bigint PRIMARY KEY, small smallint, number int, exact numeric, ratio float8,
        single float4, is_good bool, day date, moment timestamptz, local timestamp, raw bytea,
        key uuid, document jsonb, mood mood, padded char(4), numbers int[], words text[],
        amounts numeric[], time interval, big text)
    """,
    "ALTER TABLE things REPLICA IDENTITY FULL",
    # Kept out of line and not compressed, so that an update need not send it again.
    "ALTER TABLE things ALTER COLUMN big SET STORAGE EXTERNAL",
)
FILL = r"""
    INSERT INTO things VALUES
    ({id}, -7, 2147483647, 12345.678901, 0.1, 'Infinity', true, '2024-02-29',
     '2024-02-29 13:00:00.123456+02', '2024-02-29 13:00:00', '\x00ff10',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{{"b": [1, "ü"], "a": null}}', 'so so', 'ab',
     '{{1,NULL,-3}}', ARRAY['a,b', 'c"d', NULL, 'NULL', E'back\\slash', E'new\nline', ''],
     '{{1.50,2.25}}', '1 day 2 hours', repeat('x', 9000)),
    ({id} + 1, NULL, NULL, NULL, 'NaN', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     '{{}}', NULL, NULL, NULL, E'a\tb\n"c"\\')
"""


def test_every_type_is_told_as_it_is_in_the_snapshot_and_in_the_stream(tables: Tables) -> None:
    tables.run(*MAKE, FILL.format(id=1))
    reading = Reading(tables.source(COLUMNS, tables="public.things"))
    copied = reading.epoch()
    tables.run(FILL.format(id=3))
    streamed = reading.epoch()
    assert bad_of(copied) == bad_of(streamed) == []
    first, second = rows_of(copied), rows_of(streamed)
    assert [row.pop("id") for row in (*first, *second)] == [1, 2, 3, 4]
    assert [row.pop("_op") for row in (*first, *second)] == ["r", "r", "c", "c"]
    assert str(first) == str(second)
    full, empty = first
    # Written down, so that the test does not decode with what it tests.
    asked = tables.fetch("""
        SELECT small, number, exact, ratio, single, is_good, day, moment, local, raw, key::text,
               document::text, mood::text, padded::text || '  ', numbers, words, amounts,
               'P1DT2H', big
        FROM things WHERE id = 1
    """)
    assert tuple(full[name] for name in [*COLUMNS][1:]) == asked[0]
    assert full["moment"].isoformat() == "2024-02-29T11:00:00.123456+00:00"
    assert (empty.pop("numbers"), empty.pop("big")) == ([], 'a\tb\n"c"\\')
    assert (empty.pop("ratio") != 0, empty.pop("_weight")) == (True, 1)
    assert set(empty.values()) == {None}


def test_a_value_that_does_not_fit_is_a_bad_record_with_its_place(tables: Tables) -> None:
    tables.run(*MAKE, "INSERT INTO things (id, moment) VALUES (1, 'infinity'), (2, now())")
    reading = Reading(tables.source({"id": "bigint!", "moment": "timestamp"}, tables="things"))
    copied = reading.epoch()
    tables.run("INSERT INTO things (id, moment) VALUES (3, '-infinity'), (4, now())")
    streamed = reading.epoch()
    assert [row["id"] for row in rows_of(copied + streamed)] == [2, 4]
    one, two = bad_of(copied + streamed)
    assert (one["partition"], one["position"]) == ("snapshot 1", 0)
    assert b'"id": "1"' in one["raw"]
    assert (two["partition"], two["raw"][:1]) == ("public.things", b"I")
    assert two["position"] > 0
    assert all("`moment`" in each["reason"] for each in (one, two))
    assert sum(chunk.records for chunk in copied + streamed) == 4


def test_a_long_value_that_was_not_touched_is_taken_from_the_row_before(tables: Tables) -> None:
    tables.run(*MAKE, "INSERT INTO things (id, big) VALUES (1, repeat('y', 9000))")
    reading = Reading(tables.source({"id": "bigint!", "big": "string"}, tables="things"))
    reading.epoch()
    tables.run("UPDATE things SET number = 1")
    rows = rows_of(reading.epoch())
    assert [(row["_weight"], len(row["big"])) for row in rows] == [(-1, 9000), (1, 9000)]
    tables.run("ALTER TABLE things REPLICA IDENTITY DEFAULT", "UPDATE things SET number = 2")
    (letter,) = bad_of(reading.epoch())
    assert "`big` was not sent" in letter["reason"]
    assert "REPLICA IDENTITY FULL" in letter["reason"]


def test_without_whole_rows(tables: Tables) -> None:
    """As Debezium does it: an update comes alone, and of what is deleted there is the key."""
    tables.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text)",
        "INSERT INTO orders VALUES (1, 'a')",
    )
    reading = Reading(tables.source(ORDERS, tables="orders"))
    reading.epoch()
    tables.run("UPDATE orders SET name = 'b'", "UPDATE orders SET id = 2", "DELETE FROM orders")
    changes = [(1, "b", 1), (1, None, -1), (2, "b", 1), (2, None, -1)]
    assert images(reading.rows()) == changes
    strict = tables.source(ORDERS, tables="orders", before="required")
    again = reading.previous
    assert again is not None
    letters = bad_of(read(strict, again))
    assert len(letters) == 3
    assert all("whole row before" in each["reason"] for each in letters)


def test_several_tables_are_told_apart(tables: Tables) -> None:
    tables.run(
        "CREATE SCHEMA shop",
        "CREATE TABLE orders (id bigint, name text)",
        "CREATE TABLE shop.items (id bigint, price numeric)",
        "CREATE TABLE other (id bigint)",
        "INSERT INTO shop.items VALUES (1, 2.5)",
    )
    columns = {"id": "bigint!", "name": "string", "price": "decimal(10,2)"}
    reading = Reading(tables.source(columns, tables="orders, shop.items"))
    assert [row["_table"] for row in reading.rows()] == ["shop.items"]
    with tables.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO orders VALUES (2, 'a')")
        connection.execute("INSERT INTO other VALUES (9)")
        connection.execute("INSERT INTO shop.items VALUES (3, 1)")
        connection.execute("INSERT INTO orders VALUES (4, 'b')")
    found = [(row["_table"], row["id"], row["name"]) for row in reading.rows()]
    assert found == [
        ("public.orders", 2, "a"),
        ("shop.items", 3, None),
        ("public.orders", 4, "b"),
    ]


def test_a_transaction_larger_than_an_epoch_is_not_cut_in_two(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint, name text)")
    reading = Reading(tables.source(ORDERS, tables="orders"))
    reading.epoch()
    tables.run(
        "INSERT INTO orders VALUES (0, 'x')",
        "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 3000) AS n",
        "INSERT INTO orders VALUES (3001, 'x')",
    )
    limit = Admission(max_records=100)
    sizes = [len(reading.rows(limit)) for _ in range(4)]
    assert sizes == [1, 3000, 1, 0]


def test_a_table_that_changes_under_way(tables: Tables) -> None:
    """What was written before is read as it was; a column that is gone is named."""
    tables.run("CREATE TABLE orders (id bigint, name text)")
    reading = Reading(tables.source(ORDERS, tables="orders"))
    reading.epoch()
    tables.run(
        "INSERT INTO orders VALUES (1, 'a')",
        "ALTER TABLE orders ADD COLUMN more int DEFAULT 5",
        "INSERT INTO orders VALUES (2, 'b')",
    )
    assert images(reading.rows()) == [(1, "a", 1), (2, "b", 1)]
    tables.run("ALTER TABLE orders DROP COLUMN name", "INSERT INTO orders VALUES (3)")
    with pytest.raises(SchemaChanged, match=r"public.orders .*no column `name`"):
        read(reading.source, reading.plan())
    lenient = Reading(
        tables.source(ORDERS, tables="orders", on_schema_change="ignore"), reading.previous
    )
    assert images(lenient.rows()) == [(3, None, 1)]
    tables.run("ALTER TABLE orders ALTER COLUMN id TYPE text", "INSERT INTO orders VALUES ('x')")
    with pytest.raises(SchemaChanged, match="`id` is text, declared as int64"):
        lenient.epoch()


def test_a_table_that_is_emptied(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint, name text)")
    reading = Reading(tables.source(ORDERS, tables="orders"))
    reading.epoch()
    tables.run("INSERT INTO orders VALUES (1, 'a')", "TRUNCATE orders")
    plan = reading.plan()
    with pytest.raises(DecodeFailed, match=r"public\.orders was emptied"):
        read(reading.source, plan)
    aside = read(tables.source(ORDERS, tables="orders", on_truncate="dead_letter"), plan)
    assert [each["reason"][:13] for each in bad_of(aside)] == ["public.orders"]
    skipping = read(tables.source(ORDERS, tables="orders", on_truncate="skip"), plan)
    assert [(chunk.records, chunk.skipped) for chunk in skipping] == [(2, 1)]
    assert images(rows_of(skipping)) == images(rows_of(aside)) == [(1, "a", 1)]


def test_a_snapshot_in_many_files(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE orders (id bigint, name text)",
        "INSERT INTO orders SELECT n, repeat('x', 99) FROM generate_series(0, 4999) AS n",
    )
    source = tables.source(ORDERS, tables="orders", snapshot__file__bytes="64KiB")
    reading = Reading(source)
    found: list[int] = []
    while rows := reading.rows(Admission(max_records=1700)):
        found += [row["id"] for row in rows]
    assert found == [*range(5000)]
    snapshot = StoredSnapshots(tables.store, SOURCE).newest()
    assert snapshot is not None
    assert len(snapshot.files) > 5


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_long_values_are_copied_in_many_files(tables: Tables, is_partitioned: bool) -> None:
    """The blocks of the table itself hold next to nothing of them."""
    kept = "PARTITION BY RANGE (id)" if is_partitioned else ""
    tables.run(
        f"CREATE TABLE documents (id bigint, name text) {kept}",
        *(
            [
                "CREATE TABLE one PARTITION OF documents FOR VALUES FROM (0) TO (100)",
                "CREATE TABLE two PARTITION OF documents FOR VALUES FROM (100) TO (1000)",
                'ALTER PUBLICATION "all" SET (publish_via_partition_root)',
            ]
            if is_partitioned
            else []
        ),
        "INSERT INTO documents SELECT n, (SELECT string_agg(md5((n * 1000 + m)::text), '')"
        " FROM generate_series(1, 500) AS m) FROM generate_series(0, 199) AS n",
    )
    source = tables.source(ORDERS, tables="documents", snapshot__file__bytes="64KiB")
    found = Reading(source).rows()
    assert [row["id"] for row in found] == [*range(200)]
    assert {len(row["name"]) for row in found} == {16000}
    snapshot = StoredSnapshots(tables.store, SOURCE).newest()
    assert snapshot is not None
    # 3 MB in files of at most four times 64 KiB, and a row.
    assert len(snapshot.files) >= 10
    assert max(each.size_bytes for each in snapshot.files) < 400_000

"""Tables and publications that are not what they were are named: the stream would fall silent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from laminar_dagster.core.errors import InvalidConfig, SchemaChanged, TableChanged
from laminar_dagster.core.offsets import PostgresIdentity
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.testing.source_contract import CLOCK, NO_LIMIT
from tests.integration.postgres.tables import Reading, Tables

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!", "v": "string"}
LIMITS = [NO_LIMIT, Admission(max_records=1000)]


@pytest.fixture
def shop(tables: Tables) -> Tables:
    """Two tables with a publication of their own, and one that is not read."""
    tables.run(
        "CREATE TABLE customers (id bigint PRIMARY KEY, v text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, v text)",
        "CREATE TABLE lines (id bigint PRIMARY KEY)",
        "ALTER TABLE customers REPLICA IDENTITY FULL",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shop FOR TABLE customers, orders, lines",
        "INSERT INTO customers VALUES (1, 'a')",
    )
    return tables


def source(tables: Tables, names: str = "customers, orders", **options: str) -> PostgresCdcSource:
    return tables.source(COLUMNS, tables=names, **{"publication": "shop", **options})


def ids(reading: Reading, limits: Admission = NO_LIMIT) -> list[int]:
    return [row["id"] for row in reading.rows(limits)]


def begun(tables: Tables, names: str = "customers, orders") -> Reading:
    reading = Reading(source(tables, names))
    assert ids(reading) == [1]
    return reading


# --- what the server says -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["ALTER TABLE customers RENAME TO customers_old"], "called public.customers_old now"),
        (["DROP TABLE customers"], "it was dropped$"),
        (
            [
                "DROP TABLE customers",
                "CREATE TABLE customers (id bigint, v text)",
                "ALTER PUBLICATION shop ADD TABLE customers",
            ],
            "dropped and made anew",
        ),
        (["ALTER PUBLICATION shop SET TABLE orders"], "does not send it any more"),
        (
            [
                "ALTER PUBLICATION shop SET TABLE orders",
                "ALTER PUBLICATION shop ADD TABLE customers",
            ],
            "was not in publication shop all the time",
        ),
        (["ALTER PUBLICATION shop SET (publish = 'insert')"], "leaves changes out"),
        (
            ["ALTER PUBLICATION shop SET TABLE orders, customers WHERE (id > 7)"],
            r"only rows with \(id > 7\)",
        ),
    ],
)
@pytest.mark.parametrize("is_read", [True, False])
def test_a_table_that_falls_silent_is_named(
    shop: Tables, statements: Sequence[str], told: str, is_read: bool
) -> None:
    """Also while the copy is read, and while other tables go on."""
    reading = Reading(source(shop))
    if is_read:
        reading.epoch()
    else:
        reading.source.prepare(None, ())
    shop.run(*statements, "INSERT INTO orders VALUES (2, 'b')")
    with pytest.raises(TableChanged, match=told) as caught:
        reading.plan()
    assert caught.value.table == "public.customers"


def test_what_does_not_concern_the_tables_is_let_be(shop: Tables) -> None:
    reading = begun(shop)
    shop.run(
        "ALTER PUBLICATION shop SET TABLE customers, orders",
        "ALTER PUBLICATION shop RENAME TO store",
        "ALTER PUBLICATION store RENAME TO shop",
        "DROP TABLE lines",
        "ALTER TABLE customers ADD COLUMN more int",
        "VACUUM FULL customers",
        "ANALYZE customers",
        "INSERT INTO customers VALUES (2, 'b')",
    )
    assert ids(reading) == [2]


def test_a_schema_as_publication(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE customers (id bigint, v text)",
        "CREATE PUBLICATION everything FOR TABLES IN SCHEMA public",
        "INSERT INTO customers VALUES (1, 'a')",
    )
    reading = Reading(tables.source(COLUMNS, tables="customers", publication="everything"))
    assert ids(reading) == [1]
    tables.run("INSERT INTO customers VALUES (2, 'b')")
    assert ids(reading) == [2]
    tables.run(
        "ALTER PUBLICATION everything DROP TABLES IN SCHEMA public",
        "ALTER PUBLICATION everything ADD TABLES IN SCHEMA public",
    )
    with pytest.raises(TableChanged, match="all the time"):
        reading.plan()


# --- what the stream says -------------------------------------------------------------------------


@pytest.mark.parametrize("limits", LIMITS)
def test_a_name_that_was_another_for_a_while(shop: Tables, limits: Admission) -> None:
    """All before it is read; what came under the other name is not left out in silence."""
    reading = begun(shop)
    shop.run(
        "INSERT INTO customers VALUES (2, 'b')",
        "ALTER TABLE customers RENAME TO customers_old",
        "INSERT INTO customers_old VALUES (3, 'c')",
        "ALTER TABLE customers_old RENAME TO customers",
        "INSERT INTO customers VALUES (4, 'd')",
    )
    assert ids(reading, limits) == [2]
    with pytest.raises(TableChanged, match=r"called public\.customers_old from there on"):
        reading.plan(limits)


@pytest.mark.parametrize("limits", LIMITS)
def test_a_column_that_one_of_several_tables_has_lost(shop: Tables, limits: Admission) -> None:
    reading = begun(shop)
    shop.run(
        "INSERT INTO orders VALUES (2, 'b')",
        "ALTER TABLE customers DROP COLUMN v",
        "INSERT INTO orders VALUES (3, 'c')",
        "DELETE FROM customers WHERE id = 1",
    )
    assert ids(reading, limits) == [2, 3]
    with pytest.raises(SchemaChanged, match=r"public\.customers .*no column `v`"):
        reading.plan(limits)
    lenient = Reading(source(shop, on_schema_change="ignore"), reading.previous)
    (row,) = lenient.rows(limits)
    assert (row["id"], row["v"], row["_weight"]) == (1, None, -1)
    # That is what it is from now on.
    shop.run("INSERT INTO customers VALUES (5)")
    assert ids(Reading(reading.source, lenient.previous), limits) == [5]


def test_a_column_that_one_of_several_tables_has_got(tables: Tables) -> None:
    """Rows that were given out without it would be taken back with it."""
    tables.run(
        "CREATE TABLE customers (id bigint, v text)",
        "CREATE TABLE orders (id bigint)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1)",
    )
    reading = Reading(tables.source(COLUMNS, tables="customers, orders"))
    assert ids(reading) == [1]
    tables.run("INSERT INTO orders VALUES (2)")
    assert ids(reading) == [2]
    tables.run(
        "ALTER TABLE orders ADD COLUMN v text DEFAULT 'x'", "DELETE FROM orders WHERE id = 1"
    )
    with pytest.raises(SchemaChanged, match=r"public\.orders .*a column `v` now"):
        reading.plan()
    lenient = tables.source(COLUMNS, tables="customers, orders", on_schema_change="ignore")
    assert ids(Reading(lenient, reading.previous)) == [1]


def test_a_column_that_was_declared_later_is_no_change(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    reading = Reading(tables.source({"id": "bigint!"}, tables="orders"))
    assert ids(reading) == [1]
    tables.run("ALTER TABLE orders ADD COLUMN v text", "INSERT INTO orders VALUES (2, 'b')")
    wider = Reading(tables.source(COLUMNS, tables="orders"), reading.previous)
    assert [(row["id"], row["v"]) for row in wider.rows()] == [(2, "b")]


# --- plans that pin nothing, and other tables -----------------------------------------------------


def unpinned(plan: SourcePlan | None) -> SourcePlan:
    """As an earlier version has planned it."""
    assert plan is not None
    assert isinstance(plan.identity, PostgresIdentity)
    return structs.replace(plan, identity=structs.replace(plan.identity, tables={}))


def pinned(plan: SourcePlan | None) -> dict[str, tuple[str, ...]]:
    assert plan is not None
    assert isinstance(plan.identity, PostgresIdentity)
    return {name: each.columns for name, each in plan.identity.tables.items()}


@pytest.mark.parametrize("limits", LIMITS)
def test_a_plan_of_an_earlier_version_is_followed_by_one_that_pins(
    shop: Tables, limits: Admission
) -> None:
    both = {"public.customers": ("id", "v"), "public.orders": ("id", "v")}
    reading = begun(shop)
    assert pinned(reading.previous) == both
    reading.previous = unpinned(reading.previous)
    shop.run(
        "ALTER TABLE customers RENAME TO other",
        "INSERT INTO other VALUES (2, 'b')",
        "ALTER TABLE other RENAME TO customers",
        "INSERT INTO customers VALUES (3, 'c')",
    )
    assert ids(reading, limits) == [3]
    assert pinned(reading.previous) == both
    shop.run("ALTER TABLE customers RENAME TO other")
    with pytest.raises(TableChanged, match=r"called public\.other"):
        reading.plan(limits)


def test_what_is_left_in_the_log_is_not_compared_with_what_is_now(shop: Tables) -> None:
    """A table of which nothing is known is pinned where the stream speaks of it."""
    reading = begun(shop)
    reading.previous = unpinned(reading.previous)
    shop.run(
        "INSERT INTO orders VALUES (2, 'b')",
        "ALTER TABLE customers RENAME TO other",
        "INSERT INTO other VALUES (3, 'c')",
        "ALTER TABLE other RENAME TO customers",
        "INSERT INTO customers VALUES (4, 'd')",
    )
    one = Admission(max_records=1)
    assert ids(reading, one) == [2]
    assert pinned(reading.previous) == {"public.orders": ("id", "v")}
    assert [*ids(reading, one), *ids(reading, one)] == [4]
    assert len(pinned(reading.previous)) == 2


def test_a_table_that_is_named_later_comes_from_then_on(shop: Tables) -> None:
    reading = begun(shop, "customers")
    shop.run("INSERT INTO orders VALUES (2, 'b')")
    more = Reading(source(shop, "customers, orders"), reading.previous)
    assert ids(more) == [2]
    assert len(pinned(more.previous)) == 2
    fewer = Reading(source(shop, "orders"), more.previous)
    shop.run("INSERT INTO customers VALUES (3, 'c')", "INSERT INTO orders VALUES (4, 'd')")
    assert ids(fewer) == [4]
    assert pinned(fewer.previous) == {"public.orders": ("id", "v")}
    shop.run("CREATE TABLE late (id bigint, v text)")
    with pytest.raises(InvalidConfig, match=r"publication shop lacks public\.late"):
        Reading(source(shop, "orders, late"), fewer.previous).plan()


def test_a_table_that_is_asked_for_by_its_new_name(shop: Tables) -> None:
    """It goes on if nothing is left under the old one, which nobody would read."""
    reading = begun(shop)
    shop.run("ALTER TABLE customers RENAME TO clients", "INSERT INTO clients VALUES (2, 'b')")
    renamed = source(shop, "clients, orders")
    assert ids(Reading(renamed, reading.previous)) == [2]
    shop.run(
        "ALTER TABLE clients RENAME TO customers",
        "INSERT INTO customers VALUES (3, 'c')",
        "ALTER TABLE customers RENAME TO clients",
    )
    after = Reading(renamed, reading.previous)
    assert ids(after) == [2]
    with pytest.raises(TableChanged, match=r"called public\.customers from there on"):
        after.plan()


# --- set-up ---------------------------------------------------------------------------------------


def test_what_is_not_sent_is_refused_before_the_copy(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE t (id bigint PRIMARY KEY, v text, twice bigint GENERATED ALWAYS AS (id * 2)"
        " STORED)",
        "CREATE TABLE u (id bigint PRIMARY KEY, v text)",
        "CREATE PUBLICATION part FOR TABLE t WHERE (id > 7), u (id)",
    )
    columns = {**COLUMNS, "twice": "bigint"}
    wrong = tables.source(columns, tables="t, u", publication="part")
    with pytest.raises(InvalidConfig) as caught:
        wrong.plan(None, (), NO_LIMIT, CLOCK)
    told = f"{caught.value} {caught.value.advice()}"
    for part in (
        "publication part sends only rows of public.t with (id > 7)",
        "publication part leaves public.u.v out",
        "public.t.twice is generated, and changes come without it",
    ):
        assert part in told
    # What is not declared does not matter.
    tables.run("ALTER PUBLICATION part SET TABLE t, u (id)", "INSERT INTO t VALUES (1)")
    assert ids(Reading(tables.source({"id": "bigint!"}, tables="t, u", publication="part"))) == [1]

"""What others do to tables while they are copied: it waits, or the copy is tried again."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.sources.postgres.copying import TableCopier
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.integration.postgres.tables import Reading, Tables

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!", "name": "string"}
REWRITE = "ALTER TABLE small ALTER id TYPE bigint"


@pytest.fixture
def two(tables: Tables) -> Tables:
    """The larger one is copied first."""
    tables.run(
        "CREATE TABLE big (id bigint, name text)",
        "CREATE TABLE small (id int, name text)",
        "INSERT INTO big SELECT n, repeat('x', 99) FROM generate_series(1, 2000) AS n",
        "INSERT INTO small SELECT n, 'y' FROM generate_series(1, 3) AS n",
    )
    return tables


def source(tables: Tables, **options: str) -> PostgresCdcSource:
    given = {"snapshot__workers": "2", "snapshot__file__bytes": "32KiB", **options}
    return tables.source(COLUMNS, tables="big, small", **given)


def refused(tables: Tables, statement: str) -> bool:
    """Whether somebody who does not wait long is turned away."""
    with tables.connect() as connection:
        connection.execute("SET lock_timeout = '300ms'")
        try:
            connection.execute(statement)
        except psycopg.errors.LockNotAvailable:
            return True
    return False


def waiting(tables: Tables) -> bool:
    query = (
        "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE datname = current_database() AND NOT granted AND mode = 'AccessExclusiveLock'"
    )
    return bool(tables.fetch(query))


def test_no_table_is_rewritten_before_its_turn(
    two: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a snapshot that is older than the rewrite, the table would be empty."""
    create, copy = Database.create_slot, TableCopier.copy
    seen: list[bool] = []

    def before_slot(*arguments: Any) -> Any:
        seen.append(refused(two, "DROP TABLE small"))
        return create(*arguments)

    def while_copying(*arguments: Any) -> Any:
        seen.append(refused(two, REWRITE))
        found = copy(*arguments)
        # Connections that are done early do not let go either.
        seen.append(refused(two, "VACUUM FULL big"))
        return found

    monkeypatch.setattr(Database, "create_slot", before_slot)
    monkeypatch.setattr(TableCopier, "copy", while_copying)
    reading = Reading(source(two))
    assert len(reading.rows()) == 2003
    assert seen == [True, True, True]
    two.run(REWRITE, "INSERT INTO small VALUES (4, 'z')")
    assert [row["id"] for row in reading.rows()] == [4]


def test_a_rewrite_that_waits_does_not_keep_the_copy_from_its_tables(
    two: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the queue of the lock, before everybody who asks for it later."""
    copy = TableCopier.copy
    rewrite = threading.Thread(target=two.run, args=(REWRITE,))

    def while_it_waits(*arguments: Any) -> Any:
        rewrite.start()
        while rewrite.is_alive() and not waiting(two):
            time.sleep(0.01)
        return copy(*arguments)

    monkeypatch.setattr(TableCopier, "copy", while_it_waits)
    reading = Reading(source(two, statement_timeout="20s"))
    assert len(reading.rows()) == 2003
    rewrite.join()
    column = "FROM pg_attribute WHERE attrelid = 'small'::regclass AND attname = 'id'"
    assert two.fetch(f"SELECT atttypid::regtype::text {column}") == [("bigint",)]


def test_a_table_that_somebody_else_keeps_locked_is_named(two: Tables) -> None:
    with two.connect() as other, other.transaction():
        other.execute("LOCK TABLE small IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceUnavailable, match="locked by somebody else"):
            source(two, slot__timeout="1s").prepare(None, ())
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    assert two.fetch(slots) == []
    assert len(Reading(source(two)).rows()) == 2003


def test_rows_of_tables_that_inherit_are_not_the_tables_own(tables: Tables) -> None:
    """Their changes come under their own names."""
    tables.run(
        "CREATE TABLE people (id bigint, name text)",
        "CREATE TABLE staff (room text) INHERITS (people)",
        "ALTER TABLE staff REPLICA IDENTITY FULL",
        "INSERT INTO people VALUES (1, 'a')",
        "INSERT INTO staff VALUES (2, 'b', 'r')",
    )
    reading = Reading(tables.source(COLUMNS, tables="people"))
    assert [row["id"] for row in reading.rows()] == [1]
    tables.run("UPDATE staff SET name = 'c'", "INSERT INTO people VALUES (3, 'd')")
    assert [row["id"] for row in reading.rows()] == [3]
    # Named as a table, each row of it comes once.
    tables.store = MemoryStore()
    both = tables.source(COLUMNS, tables="people, staff", slot=f"{tables.slot}_both")
    assert sorted(row["id"] for row in Reading(both).rows()) == [1, 2, 3]

"""A PRIMARY KEY that a source declares is one that the database keeps, or the source is refused."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.postgres.tables import Reading, Tables

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!", "region": "string", "v": "string"}


def reading(tables: Tables, *key: str) -> Reading:
    return Reading(tables.source_with_key(COLUMNS, key, {"tables": "public.t"}))


@pytest.mark.parametrize(
    "definition",
    [
        "PRIMARY KEY (id)",
        "PRIMARY KEY (id) INCLUDE (v)",
        "UNIQUE (id)",
        "PRIMARY KEY (region, id)",
    ],
)
def test_a_key_that_the_table_has(tables: Tables, definition: str) -> None:
    tables.run(f"CREATE TABLE t (id bigint NOT NULL, region text NOT NULL, v text, {definition})")
    tables.run("INSERT INTO t VALUES (1, 'eu', 'a')")
    assert len(reading(tables, "id", "region").rows()) == 1


@pytest.mark.parametrize(
    "definition",
    [
        "CHECK (id > 0)",
        "PRIMARY KEY (id, region)",
        # A null is like no other.
        "UNIQUE (v)",
        # Two rows that change places have one key for a moment.
        "PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED",
        "EXCLUDE USING btree (id WITH =) WHERE (v = 'x')",
    ],
)
def test_a_key_that_the_table_does_not_have(tables: Tables, definition: str) -> None:
    tables.run(f"CREATE TABLE t (id bigint NOT NULL, region text NOT NULL, v text, {definition})")
    tables.run("CREATE UNIQUE INDEX ON t (id) WHERE region = 'eu'", "CREATE INDEX ON t (id)")
    key = "v" if "(v)" in definition else "id"
    told = rf"does not keep \({key}\) unique in table public\.t"
    with pytest.raises(InvalidConfig, match=told):
        reading(tables, key).plan()


def test_a_key_that_is_dropped_is_missed_before_the_next_epoch(tables: Tables) -> None:
    tables.run("CREATE TABLE t (id bigint NOT NULL, region text, v text, PRIMARY KEY (id))")
    tables.run("ALTER TABLE t REPLICA IDENTITY FULL")
    epochs = reading(tables, "id")
    tables.run("INSERT INTO t VALUES (1, 'eu', 'a')")
    assert len(epochs.rows()) == 1
    tables.run("INSERT INTO t VALUES (2, 'eu', 'b')")
    assert len(epochs.rows()) == 1
    tables.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "INSERT INTO t VALUES (2, 'us', 'c')")
    with pytest.raises(InvalidConfig, match=r"does not keep \(id\) unique in table"):
        epochs.plan()

"""What the stream says of tables beside what a plan has pinned, from bytes made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import DecodeFailed, SchemaChanged, TableChanged
from laminar_dagster.core.offsets import PostgresTable
from laminar_dagster.sources.postgres.database import Transaction
from laminar_dagster.sources.postgres.options import read_options
from laminar_dagster.sources.postgres.pinned_tables import Known, PinnedTables
from laminar_dagster.sources.postgres.publication import PublishedTable
from tests.unit.sources.postgres.stream import relation

INT8, TEXT = 20, 25
BOTH = [("id", INT8), ("v", TEXT)]
DECLARED = [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())]
PINS = {
    "public.t": PostgresTable(oid=5, columns=("id", "v"), members=(90,)),
    "public.u": PostgresTable(oid=6, columns=("id",), lacks=("v",)),
}


def pinned(**options: str) -> PinnedTables:
    given = {"host": "h", "database": "d", "user": "u", "tables": "t, u", "slot": "s", **options}
    return PinnedTables("changes", read_options(given, {}, "sources.sql:1", Path()), DECLARED, "")


def said(*relations: bytes) -> Transaction:
    return Transaction(2**33, 2**33 + 8, 0, relations=relations)


@pytest.mark.parametrize(
    ("told", "error", "what"),
    [
        (relation(5, "public.t_old", BOTH), TableChanged, r"2/0.* called public\.t_old from"),
        (relation(7, "public.t", BOTH), TableChanged, "dropped and made anew"),
        (relation(6, "public.t", BOTH), TableChanged, r"public\.u was .* called public\.t from"),
        (relation(5, "public.t", BOTH[:1]), SchemaChanged, r"public\.t .* has no column `v`"),
        (relation(5, "public.t", BOTH[1:]), SchemaChanged, "has no column `id`"),
        (relation(6, "public.u", BOTH), SchemaChanged, r"public\.u .*a column `v` now"),
        (relation(5, "public.t", [("id", TEXT), ("v", TEXT)]), SchemaChanged, "`id` is text"),
        (relation(5, "public.t", BOTH)[:-1], DecodeFailed, "cut off"),
    ],
)
def test_a_table_that_is_not_what_it_was(told: bytes, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        pinned().after(PINS, said(told))


@pytest.mark.parametrize(
    "told",
    [
        [],
        [relation(5, "public.t", BOTH)],
        [relation(5, "public.t", [("more", TEXT), *reversed(BOTH)])],
        [relation(6, "public.u", BOTH[:1])],
        [relation(8, "public.other", BOTH)],
    ],
)
def test_what_is_as_it_was(told: list[bytes]) -> None:
    assert pinned().after(PINS, said(*told)) == PINS


def test_what_may_change_is_pinned_as_it_is_then() -> None:
    told = said(relation(5, "public.t", BOTH[:1]), relation(6, "public.u", BOTH))
    assert pinned(on_schema_change="ignore").after(PINS, told) == {
        "public.t": PostgresTable(oid=5, columns=("id",), lacks=("v",), members=(90,)),
        "public.u": PostgresTable(oid=6, columns=("id", "v")),
    }
    # A column that must not be null cannot be gone.
    with pytest.raises(SchemaChanged, match="has no column `id`"):
        pinned(on_schema_change="ignore").after(PINS, said(relation(5, "public.t", BOTH[1:])))


def test_a_table_of_which_nothing_is_known_is_pinned_as_the_stream_tells() -> None:
    tables = pinned()
    made_anew = said(relation(9, "public.tmp", BOTH), relation(9, "public.t", BOTH))
    found: Any = tables.after({}, made_anew)
    assert found == {"public.t": PostgresTable(oid=9, columns=("id", "v"))}
    # Or as it is now, once nothing is left in the log.
    known = Known({}, {name: PublishedTable(9, None, ("id",), (3,)) for name in PINS})
    now = PostgresTable(oid=9, columns=("id",), lacks=("v",), members=(3,))
    told = PostgresTable(oid=9, columns=("id", "v"), members=(3,))
    assert tables.at_end(found, known, is_all=False) == {"public.t": told}
    assert tables.at_end(found, known, is_all=True) == {"public.t": told, "public.u": now}

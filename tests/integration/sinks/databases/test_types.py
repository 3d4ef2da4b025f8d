"""Columns that are there already, on a real server, and what another client reads there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import WriteFailed
from laminar_dagster.testing.sink_contract import Mode
from tests.integration.sinks.databases import kept_types
from tests.integration.sinks.databases.epochs import BOTH_MODES, WRITES, commit
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.servers import ON_MARIADB, ON_MYSQL, on

pytestmark = pytest.mark.every_server

# What is found before it is sent is shown by itself, what the server refuses with its row.
BY_US, ITS_ROW = "such as", "k=42"


def prepare(place: DatabasePlace, own: tuple[str, ...]) -> None:
    for statement in own:
        place.query(statement)


@BOTH_MODES
@pytest.mark.parametrize(
    ("every_way", "own", "existing"),
    [
        *on("postgres", cases=[(kept_types.POSTGRES_OWN, kept_types.POSTGRES_EXISTING)]),
        *on(*ON_MARIADB, cases=[((), kept_types.MARIADB_EXISTING)]),
        *on(*ON_MYSQL, cases=[((), kept_types.MYSQL_EXISTING)]),
    ],
    indirect=["every_way"],
)
def test_columns_of_every_kind(
    every_way: DatabasePlace,
    mode: Mode,
    own: tuple[str, ...],
    existing: list[tuple[str, pa.Array, Any]],
) -> None:
    prepare(every_way, own)
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(existing))
    every_way.query(f"CREATE TABLE t (k bigint PRIMARY KEY, {columns})")
    arrays = {f"c{number}": array for number, (_, array, _) in enumerate(existing)}
    nulls = {name: pa.nulls(1, array.type) for name, array in arrays.items()}
    first, second = pa.table({"k": [1], **arrays}), pa.table({"k": [2], **nulls})
    sink = every_way.sink(create=False, **WRITES[mode])
    sink.check(first.schema)
    commit(sink, 1, first, second)
    values, nothing = every_way.query("SELECT * FROM t ORDER BY k")
    for found, (kind, _, expected) in zip(values[1:], existing, strict=True):
        assert found == expected, kind
    assert {*nothing[1:]} == {None}


@pytest.mark.parametrize(
    ("every_way", "kind", "array", "hint"),
    [
        *on("postgres", cases=kept_types.POSTGRES_REFUSED),
        *on(*ON_MARIADB, cases=kept_types.MARIADB_REFUSED),
        *on(*ON_MYSQL, cases=kept_types.MYSQL_REFUSED),
    ],
    indirect=["every_way"],
)
def test_a_column_that_would_change_values_is_refused(
    every_way: DatabasePlace, kind: str, array: pa.Array, hint: str
) -> None:
    prepare(every_way, kept_types.POSTGRES_OWN if kind == "short" else ())
    every_way.query(f"CREATE TABLE t (x {kind})")
    sink = every_way.sink()
    with pytest.raises(WriteFailed, match=hint) as caught:
        commit(sink, 1, pa.table({"x": array}))
    assert "column `x` of table `t` is of type" in str(caught.value)
    assert sink.ledger() is None
    assert every_way.query("SELECT * FROM t") == []


@BOTH_MODES
@pytest.mark.parametrize(
    ("every_way", "own", "kind", "array", "reason", "shown"),
    [
        *on(
            "postgres",
            cases=[
                (kept_types.POSTGRES_OWN, *each, (BY_US if "character" in each[-1] else ITS_ROW,))
                for each in kept_types.POSTGRES_BAD
            ],
        ),
        *on(*ON_MARIADB, cases=[((), *each, (BY_US, ITS_ROW)) for each in kept_types.MARIADB_BAD]),
        *on(*ON_MYSQL, cases=[((), *each, (BY_US, ITS_ROW)) for each in kept_types.MYSQL_BAD]),
        *on(*ON_MYSQL, cases=[((), *each, ("",)) for each in kept_types.MYSQL_BAD_SOMEWHERE]),
    ],
    indirect=["every_way"],
)
def test_a_bad_value_publishes_nothing_and_is_shown_with_its_row(
    every_way: DatabasePlace,
    mode: Mode,
    own: tuple[str, ...],
    kind: str,
    array: pa.Array,
    reason: str,
    shown: tuple[str, ...],
) -> None:
    prepare(every_way, own)
    every_way.query(f"CREATE TABLE t (k bigint PRIMARY KEY, x {kind})")
    sink = every_way.sink(**WRITES[mode])
    with pytest.raises(WriteFailed) as caught:
        commit(sink, 1, pa.table({"k": [41, 42], "x": array}))
    assert reason in str(caught.value)
    assert any(part in str(caught.value) for part in shown)
    assert sink.ledger() is None
    assert every_way.query("SELECT * FROM t") == []


def test_a_view_may_change_the_layout_of_its_batches(every_way: DatabasePlace) -> None:
    """Dictionaries differ from file to file; a file may be empty."""
    first = pa.array(["b", "a", "b"]).dictionary_encode()
    second = pa.array(["z", "b"]).dictionary_encode()
    files = [pa.table({"x": each}) for each in (first, first[:0], second)]
    commit(every_way.sink(), 1, *files)
    found = every_way.query("SELECT x FROM t ORDER BY x")
    assert found == [("a",), ("b",), ("b",), ("b",), ("z",)]

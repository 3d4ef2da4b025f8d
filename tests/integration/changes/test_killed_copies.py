"""A copy of tables that dies: the next run takes one, nothing stays behind, the rows are right."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.load import Deadline
from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.errors import InvalidConfig, SourceUnavailable
from laminar_dagster.core.offsets import PostgresPosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import ObjectStore, Snapshotting, Source
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.source_contract import CLOCK, NO_LIMIT
from tests.integration.changes.captured import CapturedDatabase, CapturedPostgres
from tests.integration.changes.copying import must_be_killed, open_source, start_copy

COLUMNS = {"id": "bigint!", "name": "string"}
ROWS = 300
# MySQL's are copied by ranges of their keys, if these are worth it.
APART = 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


def shop(captured: CapturedDatabase) -> None:
    captured.make("orders", "id bigint PRIMARY KEY, name varchar(100)")
    captured.insert("orders", [(APART * number, "x" * 90) for number in range(ROWS)])


def source_table(captured: CapturedDatabase, **others: str) -> SourceTable:
    return captured.source_table("orders", COLUMNS, snapshot__file__bytes="8KiB", **others)


def snapshot_in(store: ObjectStore, table: SourceTable) -> SourceSnapshot | None:
    return StoredSnapshots(store, table.source_id).newest()


def change(captured: CapturedDatabase, number: int) -> None:
    """So that no two copies, and no copy and the log, are alike."""
    captured.run(
        f"DELETE FROM orders WHERE id = {APART * number}",
        f"UPDATE orders SET name = 'changed' WHERE id = {APART * (ROWS - number)}",
        f"INSERT INTO orders VALUES ({APART * (ROWS + number)}, 'new')",
    )


def prepare(source: Source) -> None:
    assert isinstance(source, Snapshotting)
    source.prepare(None, ())


def added_up(source: Source) -> Counter[tuple[Any, ...]]:
    """All rows that are there to be read, by their weights."""
    total = Counter[tuple[Any, ...]]()
    previous: SourcePlan | None = None
    while True:
        start = tuple(part.end for part in previous.ranges) if previous else ()
        assert isinstance(source, Snapshotting)
        source.prepare(previous, start)
        previous = source.plan(previous, start, NO_LIMIT, CLOCK)
        source.verify(previous)
        if all(part.is_empty for part in previous.ranges):
            return +total
        for part in previous.ranges:
            for split in source.splits(part):
                for chunk in source.reader().read(split):
                    assert not chunk.bad.num_rows
                    for row in chunk.rows.to_pylist():
                        total[row["id"], row["name"]] += row["_weight"]


def until(holds: Callable[[], bool]) -> None:
    deadline = Deadline(60)
    while not holds():
        assert not deadline.is_over
        time.sleep(0.05)


def test_a_copy_that_is_killed_anywhere_is_taken_up_by_the_next(
    captured: CapturedDatabase, root: Path
) -> None:
    """Before each of its writes, and after the last: with a slot and no file, with every file."""
    shop(captured)
    table, store = source_table(captured), LocalStore(root)
    finished: SourceSnapshot | None = None
    deaths = 0
    while finished is None:
        deaths += 1
        must_be_killed(start_copy(table, root, deaths))
        # A slot that is left is the next one's to remove, so there is never a second.
        assert len(captured.slots()) <= 1
        change(captured, deaths)
        finished = snapshot_in(store, table)
    # Before each of several files, before the description of them, and after it.
    assert deaths >= len(finished.files) + 2 + isinstance(finished.position, PostgresPosition)
    assert len(finished.files) > 2
    # The log is kept from where the copy that counts was taken, and for nobody else.
    kept = [*captured.slots().values()]
    assert kept == [each.lsn for each in (finished.position,) if isinstance(each, PostgresPosition)]
    source = open_source(table, store)
    live = Counter[tuple[Any, ...]](captured.fetch("SELECT id, name FROM orders"))
    assert added_up(source) == live
    assert snapshot_in(store, table) == finished
    change(captured, ROWS // 2)
    assert added_up(source) == Counter(captured.fetch("SELECT id, name FROM orders"))


# --- the slot of PostgreSQL -----------------------------------------------------------------------


@pytest.mark.service("postgres")
def test_a_copy_that_is_killed_while_its_slot_is_made(
    captured_postgres: CapturedPostgres, root: Path
) -> None:
    """The server goes on making it for somebody who is gone, until all open transactions end."""
    captured = captured_postgres
    shop(captured)
    table, store = source_table(captured, slot__timeout="2s"), LocalStore(root)
    with captured.open_transaction() as commit:
        copy = start_copy(table, root, 1000)
        until(lambda: bool(captured.slots()))
        assert copy.pid is not None
        os.kill(copy.pid, signal.SIGKILL)
        must_be_killed(copy)
        with pytest.raises(SourceUnavailable):
            prepare(open_source(table, store))
        commit()
    source = open_source(table, store)
    assert added_up(source) == Counter(captured.fetch("SELECT id, name FROM orders"))
    assert [*captured.slots()] == [table.options["slot"]]


@pytest.mark.service("postgres")
def test_a_slot_that_was_left_goes_also_if_the_source_has_another_now(
    captured_postgres: CapturedPostgres, root: Path
) -> None:
    captured = captured_postgres
    shop(captured)
    table, store = source_table(captured), LocalStore(root)
    left = table.options["slot"]
    # With the slot, and before the first file.
    must_be_killed(start_copy(table, root, 2))
    assert [*captured.slots()] == [left]
    theirs = f"{left}_theirs"
    captured.run(f"SELECT pg_create_logical_replication_slot('{theirs}', 'pgoutput')")
    # One of that name is somebody else's, whatever was begun here.
    with pytest.raises(InvalidConfig, match="already, and it is not known here"):
        prepare(open_source(source_table(captured, slot=theirs), store))
    assert theirs in captured.slots()
    source = open_source(source_table(captured, slot=f"{left}_now"), store)
    assert added_up(source) == Counter(captured.fetch("SELECT id, name FROM orders"))
    assert {*captured.slots()} == {theirs, f"{left}_now"}

"""The options: every mistake at once, with the nearest spelling, and no secret in any of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.offsets import PostgresPosition
from laminar_dagster.core.ports import Admission
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.changes.planned import admitted_rows
from laminar_dagster.sources.postgres.admission import within
from laminar_dagster.sources.postgres.copying import in_parts, pieces_of
from laminar_dagster.sources.postgres.database import Transaction
from laminar_dagster.sources.postgres.options import PostgresCdcOptions, read_options
from laminar_dagster.sources.postgres.reader import PostgresSplitReader
from laminar_dagster.sources.postgres.tables import Table
from laminar_dagster.sources.postgres.traits import postgres_cdc_traits
from tests.unit.core.test_snapshot import with_files

GOOD = {"host": "db", "database": "shop", "tables": "orders, a.b", "slot": "laminar"}


def read(**changes: str) -> PostgresCdcOptions:
    given = {**GOOD, **{name.replace("__", "."): text for name, text in changes.items()}}
    defaults = {"idle.timeout": "5m", "on_gap": "earliest"}
    return read_options({k: v for k, v in given.items() if v != "-"}, defaults, "s.sql:1", Path())


def test_what_is_set_by_default() -> None:
    options = read()
    assert options.tables == ("public.orders", "a.b")
    assert options.publication == options.slot == "laminar"
    assert options.idle_timeout == timedelta(minutes=5)
    # What a pipeline says of Kafka and files is no consent to a new snapshot.
    assert options.on_gap == "fail"


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(
            host="-", tables="a.b.c", slot="Big", snapshot="sometimes", on_gab="fail",
            snapshot__workers="0", password="a-secret-word", sslmode="maybe",
        )  # fmt: skip
    told = f"{caught.value} {caught.value.advice()}"
    for part in ("`host` is missing", "'a.b.c'", "lower-case", "initial, never", "on_gap",
                 "at least 1", "`sslmode` must be one of"):  # fmt: skip
        assert part in told
    assert "a-secret-word" not in told


def test_no_secret_is_shown() -> None:
    options = read(password="a-secret-word")
    assert "a-secret-word" not in repr(options)
    keeper = StoredSnapshots(None, with_files().source_id)
    assert "a-secret-word" not in repr(PostgresSplitReader("s", None, options, keeper))


def test_the_columns_that_are_added() -> None:
    def names(**options: str) -> list[str]:
        return [each.name for each in postgres_cdc_traits(options).columns]

    assert names(tables="a") == ["_op", "_weight"]
    assert names(tables="a, b") == ["_table", "_op", "_weight"]
    full = names(tables="a", **{"include.metadata": "true"})
    assert full == ["_table", "_position", "_timestamp", "_op", "_weight"]
    assert "required" in postgres_cdc_traits({}).lacks_retractions
    assert postgres_cdc_traits({"before": "required"}).lacks_retractions == ""


# --- how much an epoch takes --------------------------------------------------------------------


def snapshot(rows: int) -> SourceSnapshot:
    return with_files(rows)


def test_rows_of_a_snapshot_that_an_epoch_takes() -> None:
    assert admitted_rows(snapshot(9), 2, Admission()) == 9
    assert admitted_rows(snapshot(9), 2, Admission(max_records=3)) == 5
    assert admitted_rows(snapshot(9), 2, Admission(max_bytes=1)) == 3
    assert admitted_rows(snapshot(9), 9, Admission(max_records=3)) == 9
    assert isinstance(snapshot(9).position, PostgresPosition)


def test_transactions_that_an_epoch_takes() -> None:
    sizes = (2, 3, 100, 1)
    some = [Transaction(n, n + 1, 0, count, count * 10) for n, count in enumerate(sizes)]
    assert within(some, Admission(max_records=5)) == (2, True)
    assert within(some, Admission(max_records=4)) == (1, True)
    assert within(some[2:], Admission(max_records=4)) == (3, True)
    assert within(some, Admission(max_bytes=50)) == (2, True)
    assert within(some, Admission(max_records=1000)) == (4, False)
    assert within([], Admission(max_records=1)) == (None, False)


def test_pieces_of_tables_leave_no_block_out() -> None:
    def table(name: str, blocks: int, *, partitioned: bool = False) -> Table:
        return Table(name, partitioned, True, blocks, 8192, {})

    pieces = pieces_of([table("a.a", 0), table("a.b", 5), table("a.c", 9, partitioned=True)], 16384)
    assert [(each.table.name, each.first, each.last) for each in pieces] == [
        ("a.a", None, None),
        ("a.b", 0, 2),
        ("a.b", 2, 4),
        ("a.b", 4, None),
        ("a.c", None, None),
    ]
    assert len({each.file_name(part) for each in pieces for part in (0, 1)}) == 10


@given(st.lists(st.integers(1, 9).map(lambda size: b"x" * size)), st.integers(1, 20))
def test_parts_hold_every_row_and_are_cut_in_time(rows: list[bytes], most: int) -> None:
    parts = [*in_parts(iter(rows), most)]
    assert b"".join(parts) == b"".join(rows)
    assert all(len(each) >= most for each in parts[:-1])
    assert all(len(each) < most + 9 for each in parts)
    assert (b"" in parts) == (not rows)

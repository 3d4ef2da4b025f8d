"""What is special about Delta."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    LedgerMismatch,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.sinks.delta import sink as delta_sink
from laminar_dagster.sinks.delta import writes
from laminar_dagster.sinks.delta.sink import DeltaSink
from tests.unit.sinks.staging import SINK, staged

PIPELINE = PipelineName("clicks")
APPLICATION = "laminar:clicks:table"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def sink_at(folder: Path, **options: Any) -> DeltaSink:
    return DeltaSink(SINK, PIPELINE, folder, **options)


def commit(sink: DeltaSink, epoch: int, *tables: pa.Table) -> None:
    sink.commit(EpochNumber(epoch), staged(*tables))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: str([*row.values()]))


# --- one commit an epoch --------------------------------------------------------------------------


def test_an_epoch_is_one_delta_version_with_its_transaction(folder: Path) -> None:
    sink = sink_at(folder, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1]}), pa.table({"k": [2]}))
    commit(sink, 2, pa.table({"k": [2, 3]}))
    commit(sink, 3)
    commit(sink, 4, pa.table({"k": [3], "_weight": [-1]}))
    commit(sink, 5, pa.table({"k": [99], "_weight": [-1]}))
    for version in range(5):
        table = DeltaTable(str(folder), version=version)
        assert table.transaction_version(APPLICATION) == version + 1
    assert DeltaTable(str(folder)).version() == 4


def test_a_table_whose_columns_are_not_known_yet(folder: Path) -> None:
    sink = sink_at(folder)
    commit(sink, 1)
    commit(sink, 2)
    assert rows_of(folder) == []
    commit(sink, 3, pa.table({"k": [1], "v": ["a"]}))
    commit(sink, 4, pa.table({"k": [2], "v": ["b"]}))
    assert DeltaTable(str(folder)).version() == 3
    assert rows_of(folder) == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]


def test_the_ledger_outlives_checkpoints_and_log_clean_up(folder: Path) -> None:
    sink = sink_at(folder)
    for epoch in range(1, 4):
        commit(sink, epoch, pa.table({"k": [epoch]}))
    DeltaTable(str(folder)).create_checkpoint()
    # The clean-up keeps the entry of the checkpoint itself.
    for version in (0, 1):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    assert sink.ledger() == 3
    commit(sink, 4, pa.table({"k": [4]}))
    assert [row["k"] for row in rows_of(folder)] == [1, 2, 3, 4]


def test_a_log_entry_that_a_power_failure_left_empty_is_no_epoch(folder: Path) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    (folder / "_delta_log" / f"{1:020d}.json").touch()
    assert sink.ledger() == 1
    commit(sink, 2, pa.table({"k": [2]}))
    assert [row["k"] for row in rows_of(folder)] == [1, 2]


def test_orphans_of_a_commit_that_never_came_are_harmless(folder: Path) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    (orphan,) = folder.glob("*.parquet")
    (folder / "part-00000-orphan.parquet").write_bytes(orphan.read_bytes())
    assert rows_of(folder) == [{"k": 1}]
    commit(sink, 2, pa.table({"k": [2]}))
    assert rows_of(folder) == [{"k": 1}, {"k": 2}]


# --- other writers --------------------------------------------------------------------------------


def test_the_client_makes_no_commit_for_another_version(folder: Path) -> None:
    """What the fence rests on, for each way in which the table is changed."""
    properties = CommitProperties(
        max_commit_retries=0, app_transactions=[Transaction(APPLICATION, 1)]
    )
    row = pa.table({"k": [1]})
    no_key = row.slice(0, 0)
    ways: list[Callable[[DeltaTable], None]] = [
        lambda table: writes.append(table, row, properties),
        lambda table: writes.append(table, pa.table({"k": [1], "new": [1]}), properties),
        lambda table: writes.merge(table, row, no_key, ("k",), properties),
        lambda table: writes.merge(table, row.slice(0, 0), row, ("k",), properties),
        lambda table: writes.move_ledger_only(table, properties),
    ]
    write_deltalake(str(folder), row)
    for way in ways:
        stale = DeltaTable(str(folder))
        write_deltalake(str(folder), row, mode="append")
        version = DeltaTable(str(folder)).version()
        with pytest.raises(CommitFailedError):
            way(stale)
        assert DeltaTable(str(folder)).version() == version
    pending = str(folder) + "-pending"
    writes.create_pending(pending, None, properties)
    stale = DeltaTable(pending)
    writes.append(DeltaTable(pending), row, properties)
    with pytest.raises(CommitFailedError):
        writes.append(stale, row, properties)
    with pytest.raises(DeltaError, match="already exists"):
        writes.create(pending, row, None, properties)
    with pytest.raises(DeltaError, match="already exists"):
        writes.create_pending(pending, None, properties)
    assert rows_of(Path(pending)) == [{"k": 1}]


def test_other_writers_in_between_are_no_loss(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another application commits between reading the ledger and every one of three tries."""
    monkeypatch.setattr(delta_sink, "_LONGEST_PAUSE", 0.0)
    for mode, key in (("append", ()), ("upsert", ("k",))):
        place = folder / mode
        sink = sink_at(place, mode=mode, key=key)
        commit(sink, 1, pa.table({"k": [1]}))
        intruders = iter([100, 101, 102])
        with monkeypatch.context() as patch:
            _before_each_write(patch, place, intruders)
            commit(sink, 2, pa.table({"k": [2]}))
        assert sorted(row["k"] for row in rows_of(place)) == [1, 2, 100, 101, 102]
        assert sink.ledger() == 2


def test_writers_that_never_let_go_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_sink, "_LONGEST_PAUSE", 0.0)
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    _before_each_write(monkeypatch, folder, iter(range(100, 999)))
    with pytest.raises(SinkUnavailable, match="other writers"):
        commit(sink, 2, pa.table({"k": [2]}))
    assert sink.ledger() == 1
    assert 2 not in [row["k"] for row in rows_of(folder)]


def test_an_epoch_that_another_committer_published_in_between(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    real = writes.append
    with monkeypatch.context() as patch:

        def meanwhile(table: DeltaTable, rows: Any, properties: CommitProperties) -> None:
            patch.setattr(writes, "append", real)
            commit(sink_at(folder), 2, pa.table({"k": [2]}))
            real(table, rows, properties)

        patch.setattr(writes, "append", meanwhile)
        commit(sink, 2, pa.table({"k": [2]}))
    assert rows_of(folder) == [{"k": 1}, {"k": 2}]
    with monkeypatch.context() as patch:

        def two_epochs(table: DeltaTable, rows: Any, properties: CommitProperties) -> None:
            patch.setattr(writes, "append", real)
            commit(sink_at(folder), 3, pa.table({"k": [3]}))
            commit(sink_at(folder), 4, pa.table({"k": [4]}))
            real(table, rows, properties)

        patch.setattr(writes, "append", two_epochs)
        with pytest.raises(LedgerMismatch):
            commit(sink, 3, pa.table({"k": [3]}))
    assert rows_of(folder) == [{"k": 1}, {"k": 2}, {"k": 3}, {"k": 4}]


def test_two_sinks_may_share_a_table(folder: Path) -> None:
    start = threading.Barrier(2)

    def run(name: str) -> None:
        sink = DeltaSink(SinkId(name), PIPELINE, folder)
        start.wait()
        for epoch in range(1, 6):
            sink.commit(EpochNumber(epoch), staged(pa.table({"k": [f"{name}{epoch}"]})))

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(run, name) for name in "ab"]:
            each.result()
    expected = sorted(f"{name}{epoch}" for name in "ab" for epoch in range(1, 6))
    assert [row["k"] for row in rows_of(folder)] == expected
    other = DeltaSink(SinkId("a"), PipelineName("other"), folder)
    assert other.ledger() is None


# --- columns --------------------------------------------------------------------------------------

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)


def test_types_that_delta_has_come_back_as_they_were(folder: Path) -> None:
    nested = pa.struct([("a", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.float64()))])
    table = pa.table(
        {
            "i": pa.array([-(2**63), None], pa.int64()),
            "small": pa.array([-128, None], pa.int8()),
            "f": pa.array([float("inf"), None]),
            "d": pa.array([Decimal("9" * 36 + ".50"), None], pa.decimal128(38, 2)),
            "s": pa.array(["", None], pa.large_string()),
            "c": pa.array(["x", None]).dictionary_encode(),
            "b": pa.array([b"\0\xff", None], pa.large_binary()),
            "t": pa.array([True, None]),
            "day": pa.array([date(2024, 2, 29), None], pa.date64()),
            "at": pa.array([MOMENT, None], pa.timestamp("us", "America/New_York")),
            "local": pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("ms")),
            "n": pa.array([{"a": [1, None], "m": [("x", 0.5)]}, None], nested),
        }
    )
    exact = table.set_column(10, "local", table["local"].cast(pa.timestamp("us")))
    expected = exact.to_pylist()
    sink = sink_at(folder)
    commit(sink, 1, table)
    commit(sink, 2, table)
    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    key = str
    for row in [*found, *expected]:
        row["at"] = row["at"] and row["at"].astimezone(UTC)
    assert sorted(found, key=key) == sorted(expected * 2, key=key)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.uint8()),
        pa.array([1], pa.uint64()),
        pa.array([1], pa.time64("us")),
        pa.array([1], pa.duration("us")),
        pa.array([Decimal(1)], pa.decimal256(39, 0)),
        pa.array([[1]], pa.list_(pa.uint32())),
        pa.array([1], pa.timestamp("ns")),
        pa.array([2**62], pa.timestamp("s")),
        pa.nulls(1),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_delta_would_cut_off_is_refused(folder: Path, array: pa.Array, is_first: bool) -> None:
    sink = sink_at(folder)
    if not is_first:
        commit(sink, 1, pa.table({"k": [1]}))
    with pytest.raises(WriteFailed, match="`x`"):
        commit(sink, 1 if is_first else 2, pa.table({"k": [1], "x": array}))
    assert sink.ledger() == (None if is_first else 1)


@pytest.mark.parametrize(
    ("there", "comes", "fits"),
    [
        (pa.int64(), pa.array([1], pa.int32()), True),
        (pa.int32(), pa.array([1], pa.int64()), False),
        (pa.float64(), pa.array([1.5], pa.float32()), True),
        (pa.float32(), pa.array([1.5]), False),
        (pa.decimal128(20, 2), pa.array([Decimal("1.50")], pa.decimal128(10, 2)), True),
        (pa.decimal128(20, 3), pa.array([Decimal("1.50")], pa.decimal128(10, 2)), False),
        (pa.int64(), pa.array(["1"]), False),
        (pa.string(), pa.array([1]), False),
        (pa.float64(), pa.array([1]), False),
        (pa.timestamp("us", "UTC"), pa.array([1], pa.timestamp("us")), False),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_column_may_be_narrower_than_the_table_s(
    folder: Path, there: pa.DataType, comes: pa.Array, fits: bool, mode: str
) -> None:
    """The client would turn the text '1' into the number, and 1.5 into 1."""
    empty = pa.table({"k": pa.array([], pa.int64()), "x": pa.array([], there)})
    write_deltalake(str(folder), empty)
    sink = sink_at(folder, mode=mode, key=("k",) if mode == "upsert" else ())
    row = pa.table({"k": [1], "x": comes})
    if fits:
        commit(sink, 1, row)
        assert rows_of(folder) == row.to_pylist()
        return
    with pytest.raises(WriteFailed, match="`x`"):
        commit(sink, 1, row)
    assert sink.ledger() is None


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_columns_that_the_view_gains_and_loses(folder: Path, mode: str) -> None:
    key = ("k",) if mode == "upsert" else ()
    sink = sink_at(folder, mode=mode, key=key)
    commit(sink, 1, pa.table({"k": [1], "old": ["a"]}))
    commit(sink, 2, pa.table({"new": [1.5], "k": [2], "_weight": [1]}))
    expected = [{"k": 1, "old": "a", "new": None}, {"k": 2, "old": None, "new": 1.5}]
    assert rows_of(folder) == expected
    strict = sink_at(folder, mode=mode, key=key, create=False)
    with pytest.raises(WriteFailed, match="no column `newer`"):
        commit(strict, 3, pa.table({"k": [3], "newer": [1]}))
    with pytest.raises(WriteFailed, match="`NEW`"):
        commit(sink, 3, pa.table({"k": [3], "NEW": [1.5]}))
    assert rows_of(folder) == expected
    assert DeltaTable(str(folder)).version() == 1


def test_upsert_leaves_columns_that_the_view_has_lost(folder: Path) -> None:
    sink = sink_at(folder, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1], "old": ["a"], "v": [1]}))
    commit(sink, 2, pa.table({"k": [1], "v": [2]}))
    assert rows_of(folder) == [{"k": 1, "old": "a", "v": 2}]


def test_names_are_quoted(folder: Path) -> None:
    names = ["A b", "q`uote", 'd"q', "select", "größe", "a.b", "_deleted", "source"]
    row = pa.table({name: [number] for number, name in enumerate(names)})
    sink = sink_at(folder, mode="upsert", key=tuple(names[:6]))
    commit(sink, 1, row)
    commit(sink, 2, row.set_column(6, "_deleted", pa.array([66])))
    assert rows_of(folder) == [{**row.to_pylist()[0], "_deleted": 66}]
    commit(sink, 3, row.append_column("_weight", pa.array([-1])))
    assert rows_of(folder) == []


def test_a_key_of_several_kinds(folder: Path) -> None:
    rows = pa.table(
        {
            "at": pa.array([1, 1, 2], pa.timestamp("us", "UTC")),
            "d": pa.array([Decimal("1.50")] * 3, pa.decimal128(9, 2)),
            "s": pa.array(["it's", "it's", "é"]).dictionary_encode(),
            "v": [1, 2, 3],
        }
    )
    sink = sink_at(folder, mode="upsert", key=("at", "d", "s"))
    commit(sink, 1, rows)
    commit(sink, 2, rows.slice(0, 1))
    assert sorted(row["v"] for row in rows_of(folder)) == [1, 3]


def test_a_null_key_is_refused(folder: Path) -> None:
    """It would match nothing, and be added anew by every epoch."""
    sink = sink_at(folder, mode="upsert", key=("k",))
    with pytest.raises(WriteFailed, match="null in 1 rows"):
        commit(sink, 1, pa.table({"k": [1, None]}))
    assert sink.ledger() is None


# --- tables that cannot be used -------------------------------------------------------------------


def test_without_create_no_table_is_made(tmp_path: Path, folder: Path) -> None:
    sink = sink_at(folder, create=False)
    for tables in ((), (pa.table({"k": [1]}),)):
        with pytest.raises(WriteFailed, match="no Delta table"):
            commit(sink, 1, *tables)
    assert [*tmp_path.iterdir()] == []
    write_deltalake(str(folder), pa.table({"k": [7]}))
    assert sink.ledger() is None
    commit(sink, 1, pa.table({"k": [1]}))
    assert rows_of(folder) == [{"k": 1}, {"k": 7}]


def test_a_table_that_forgets_its_ledger_is_refused(folder: Path) -> None:
    write_deltalake(
        str(folder),
        pa.table({"k": [7]}),
        configuration={"delta.setTransactionRetentionDuration": "interval 1 day"},
    )
    with pytest.raises(WriteFailed, match="setTransactionRetentionDuration"):
        commit(sink_at(folder), 1, pa.table({"k": [1]}))
    assert rows_of(folder) == [{"k": 7}]


def test_a_table_that_was_deleted_is_not_made_again(folder: Path) -> None:
    sink = sink_at(folder)
    for epoch in (1, 2):
        commit(sink, epoch, pa.table({"k": [epoch]}))
    folder.rename(folder.with_name("elsewhere"))
    assert sink.ledger() is None
    with pytest.raises(LedgerMismatch):
        commit(sink, 3, pa.table({"k": [3]}))
    assert not folder.exists()


def test_a_damaged_log_and_a_file_in_place_of_the_folder(folder: Path) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    (folder / "_delta_log" / f"{1:020d}.json").write_text('{"add": gar')
    for call in (sink.ledger, lambda: commit(sink, 2, pa.table({"k": [2]}))):
        with pytest.raises(ServiceFailed, match="table"):
            call()
    file = folder.with_name("file")
    file.write_text("")
    with pytest.raises(ServiceFailed):
        commit(sink_at(file), 1, pa.table({"k": [1]}))
    with pytest.raises(ServiceFailed):
        commit(sink_at(file / "below"), 1, pa.table({"k": [1]}))


# --- errors around the commit ---------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_an_error_after_the_commit_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Such as the log's own checkpoint, which the client writes after the commit."""
    sink = sink_at(folder)
    if not is_first:
        commit(sink, 1, pa.table({"k": [0]}))
    epoch = 1 if is_first else 2
    _then_fail(monkeypatch, OSError("the reply was lost"))
    commit(sink, epoch, pa.table({"k": [epoch]}))
    assert sink.ledger() == epoch
    assert [row["k"] for row in rows_of(folder)].count(epoch) == 1


def test_an_error_after_which_the_table_cannot_be_read_is_unknown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))
    with monkeypatch.context() as patch:
        real = writes.append

        def write_and_vanish(*arguments: Any) -> None:
            real(*arguments)
            (folder / "_delta_log" / f"{2:020d}.json").write_text("gar")
            raise OSError("the disk went away")

        patch.setattr(writes, "append", write_and_vanish)
        with pytest.raises(CommitOutcomeUnknown, match="the disk went away"):
            commit(sink, 2, pa.table({"k": [2]}))
    (folder / "_delta_log" / f"{2:020d}.json").unlink()
    assert sink.ledger() == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("No space left on device"), SinkUnavailable),
        (RuntimeError("Generic error: No space left on device (os error 28)"), SinkUnavailable),
        (CommitFailedError("cannot write the log"), SinkUnavailable),
        (RuntimeError("External error: invariant violated"), WriteFailed),
    ],
)
def test_an_error_before_the_commit_publishes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))

    def fail(*_arguments: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(writes, "append", fail)
        with pytest.raises(kind):
            commit(sink, 2, pa.table({"k": [2]}))
    assert sink.ledger() == 1
    commit(sink, 2, pa.table({"k": [2]}))
    assert rows_of(folder) == [{"k": 1}, {"k": 2}]


_FILL_THE_DISK = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from laminar_dagster.core.errors import SinkUnavailable
from tests.unit.sinks.test_delta_sink import commit, sink_at

sink = sink_at(Path(sys.argv[1]))
commit(sink, 1, pa.table({"k": [-1]}))
many = [pa.table({"k": range(part, 10**6, 4)}) for part in range(4)]
# The kernel refuses to let any file grow beyond this, as a full disk does.
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    commit(sink, 2, *many)
except SinkUnavailable as error:
    print(error)
"""


def test_a_full_disk_publishes_nothing(folder: Path) -> None:
    command = [sys.executable, "-c", _FILL_THE_DISK, str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in child.stdout, child.stderr
    sink = sink_at(folder)
    assert sink.ledger() == 1
    assert rows_of(folder) == [{"k": -1}]
    commit(sink, 2, pa.table({"k": [2]}))
    assert rows_of(folder) == [{"k": -1}, {"k": 2}]


def test_an_epoch_is_flushed_before_the_commit_returns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def watched(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", watched)
    sink = sink_at(folder / "below")
    for epoch in (1, 2):
        flushed.clear()
        commit(sink, epoch, pa.table({"k": [epoch]}))
        names = {Path(path).relative_to(folder.parent).as_posix() for path in flushed}
        parquet = {name for name in names if name.endswith(".parquet")}
        log = "table/below/_delta_log"
        wanted = {"table/below", log, f"{log}/{epoch - 1:020d}.json"}
        assert len(parquet) == 1
        assert names - parquet >= wanted | ({".", "table"} if epoch == 1 else set())


def test_an_epoch_that_could_not_be_flushed_is_unknown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(folder)
    commit(sink, 1, pa.table({"k": [1]}))

    def fail(_handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(CommitOutcomeUnknown, match="could not be flushed"):
            commit(sink, 2, pa.table({"k": [2]}))
    assert sink.ledger() == 2


# --- helpers --------------------------------------------------------------------------------------


def _before_each_write(patch: pytest.MonkeyPatch, folder: Path, keys: Iterator[int]) -> None:
    """Let another application commit a row just before each write, while there are keys left."""

    def intrude(name: str) -> None:
        real = getattr(writes, name)

        def write(*arguments: Any) -> None:
            key = next(keys, None)
            if key is not None:
                write_deltalake(str(folder), pa.table({"k": [key]}), mode="append")
            real(*arguments)

        patch.setattr(writes, name, write)

    intrude("append")
    intrude("merge")


def _then_fail(patch: pytest.MonkeyPatch, error: Exception) -> None:
    def spoil(name: str) -> None:
        real = getattr(writes, name)

        def write(*arguments: Any) -> None:
            real(*arguments)
            raise error

        patch.setattr(writes, name, write)

    spoil("append")
    spoil("create")


# --- asked before ---------------------------------------------------------------------------------


def test_a_check_says_what_a_commit_would_refuse(folder: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with pytest.raises(InvalidConfig, match="there is no Delta table"):
        sink_at(folder, create=False).check(columns)
    sink_at(folder).check(columns)
    assert not folder.exists()
    commit(sink_at(folder), 1, pa.table({"k": [1]}))
    sink_at(folder).check(columns)
    with pytest.raises(InvalidConfig, match="has no column `v`"):
        sink_at(folder, create=False).check(columns)
    with pytest.raises(InvalidConfig, match="no key column `id`"):
        sink_at(folder, mode="upsert", key=("id",)).check(columns)
    with pytest.raises(InvalidConfig, match="`k`"):
        sink_at(folder).check(pa.schema([("k", pa.string())]))
    assert DeltaTable(str(folder)).version() == 0

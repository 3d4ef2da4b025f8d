"""Rows that other writers take out of a Delta table are not passed over by its ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from laminar_dagster.core.errors import InvalidConfig, LedgerMismatch, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.delta import others
from laminar_dagster.sinks.delta.sink import DeltaSink
from tests.unit.sinks.staging import SINK, staged

Act = Callable[[Path], object]
# Of the first three epochs; the newest of them is version 2.
NEWEST = 2


def sink_at(folder: Path, **options: Any) -> DeltaSink:
    options = {"mode": "upsert", "key": ("k",), **options}
    return DeltaSink(options.pop("sink_id", SINK), PipelineName("clicks"), folder, **options)


def rows(*keys: int, value: str = "ours") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [value] * len(keys)})


def commit(sink: DeltaSink, epoch: int, *keys: int) -> None:
    sink.commit(EpochNumber(epoch), staged(rows(*keys)))


def keys_of(folder: Path) -> list[int]:
    found: list[int] = DeltaTable(str(folder)).to_pyarrow_table()["k"].to_pylist()
    return sorted(found)


def refusal(sink: DeltaSink, epoch: int = 4, written: pa.Table | None = None) -> str:
    """By the check before an epoch is prepared, and by the commit; nothing is written."""
    output = staged(rows(99) if written is None else written)
    before = sink.ledger()
    with pytest.raises(InvalidConfig) as checked:
        sink.check((rows(99) if written is None else written).schema, output)
    with pytest.raises(WriteFailed) as refused:
        sink.commit(EpochNumber(epoch), output)
    assert sink.ledger() == before
    assert checked.value.problem.endswith(refused.value.reason)
    return refused.value.reason


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with three epochs, one row each."""
    path = tmp_path / "table"
    for epoch in (1, 2, 3):
        commit(sink_at(path), epoch, epoch)
    assert DeltaTable(str(path)).version() == NEWEST
    return path


def table(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder))


def restore(version: int) -> Act:
    return lambda folder: table(folder).restore(version)


def overwrite(folder: Path) -> None:
    write_deltalake(str(folder), rows(7, value="theirs"), mode="overwrite")


def overwrite_columns(folder: Path) -> None:
    wider = rows(7).append_column("more", pa.array([1]))
    write_deltalake(str(folder), wider, mode="overwrite", schema_mode="overwrite")


def replace_some(folder: Path) -> None:
    write_deltalake(str(folder), rows(2, value="theirs"), mode="overwrite", predicate="k = 2")


def append(folder: Path) -> None:
    write_deltalake(str(folder), rows(8, 9, value="theirs"), mode="append")


def delete(predicate: str | None) -> Act:
    return lambda folder: table(folder).delete(predicate)


def update(folder: Path) -> None:
    table(folder).update(updates={"v": "'theirs'"}, predicate="k = 1")


def merge(folder: Path) -> None:
    merger = table(folder).merge(rows(1, 5), "t.k = s.k", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def compact(folder: Path) -> None:
    table(folder).optimize.compact()


def sort(folder: Path) -> None:
    table(folder).optimize.z_order(["k"])


def vacuum(folder: Path) -> None:
    table(folder).vacuum(0, dry_run=False, enforce_retention_duration=False)


def add_column(folder: Path) -> None:
    table(folder).alter.add_columns([Field("more", PrimitiveType("long"))])


def set_property(folder: Path) -> None:
    table(folder).alter.set_table_properties({"delta.checkpointInterval": "5"})


def checkpoint(folder: Path) -> None:
    table(folder).create_checkpoint()


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "operation"),
    [
        (restore(0), "RESTORE"),
        (restore(1), "RESTORE"),
        (overwrite, "WRITE"),
        (overwrite_columns, "WRITE"),
        (replace_some, "WRITE"),
        (delete(None), "DELETE"),
        (delete("k = 2"), "DELETE"),
        (update, "UPDATE"),
        (merge, "MERGE"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_that_others_took_out_are_no_epoch_of_the_ledger(
    folder: Path, act: Act, operation: str, mode: Any
) -> None:
    """The ledger still says 3: the next epoch would go on over a gap."""
    act(folder)
    sink = sink_at(folder, mode=mode, key=("k",) if mode == "upsert" else ())
    assert sink.ledger() == 3
    left = keys_of(folder)
    said = refusal(sink)
    assert f"version 3 of the Delta table ({operation}, by another writer)" in said
    assert "RESTORE the table to version 2" in said
    assert "accept_changes_until = '3'" in said
    assert keys_of(folder) == left


@pytest.mark.parametrize("meanwhile", [append, compact, vacuum, set_property, checkpoint])
def test_the_first_of_several_versions_is_named(folder: Path, meanwhile: Act) -> None:
    """Whatever came before it and after it."""
    meanwhile(folder)
    version = table(folder).version() + 1
    delete("k = 2")(folder)
    append(folder)
    overwrite(folder)
    assert f"version {version} of the Delta table (DELETE, by another writer)" in refusal(
        sink_at(folder)
    )


def test_rows_that_are_deleted_within_a_file_are_missed_too(folder: Path) -> None:
    """A deletion vector: the file is removed, and added again with less in it."""
    log = folder / "_delta_log"
    (added,) = (
        line["add"]
        for line in map(json.loads, (log / f"{NEWEST:020d}.json").read_text().splitlines())
        if "add" in line
    )
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 4}
    entry = [
        {"commitInfo": {"operation": "DELETE"}},
        {"remove": {"path": added["path"], "dataChange": True}},
        {"add": {**added, "deletionVector": {**vector, "cardinality": 1}}},
    ]
    text = "\n".join(map(json.dumps, entry))
    entries = {3: text, 2: (log / f"{NEWEST:020d}.json").read_text()}
    with pytest.raises(Unwritable, match=r"version 3 of the Delta table \(DELETE"):
        others.check_others("laminar:clicks:table", 3, others.NO_VERSION, entries.get)


def test_a_commit_that_says_nothing_of_itself_is_judged_by_its_files() -> None:
    """The format does not ask for a ``commitInfo``, nor for ``dataChange`` to be spelled out."""
    entries = {0: '{"txn":{"appId":"mine","version":1}}', 1: '{"remove":{"path":"a.parquet"}}'}
    with pytest.raises(Unwritable, match=r"version 1 .* \(a commit without a name"):
        others.check_others("mine", 1, others.NO_VERSION, entries.get)


def test_a_log_without_what_happened_meanwhile_is_refused(folder: Path) -> None:
    append(folder)
    append(folder)
    checkpoint(folder)
    (folder / "_delta_log" / f"{3:020d}.json").unlink()
    said = refusal(sink_at(folder))
    assert "the log of the Delta table has its version 3 no more" in said
    commit(sink_at(folder, accept_changes_until=4), 4, 4)


def test_a_table_that_was_made_anew_has_no_ledger(folder: Path) -> None:
    """So there is nothing to look for in its log."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    append(folder)
    overwrite(folder)
    with pytest.raises(LedgerMismatch):
        commit(sink_at(folder), 4, 4)


# --- what is not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act", [append, compact, sort, vacuum, add_column, set_property, checkpoint]
)
def test_others_may_add_rows_and_keep_house(folder: Path, act: Act) -> None:
    """None of it takes a row of ours away; before, between and after epochs."""
    act(folder)
    left = keys_of(folder)
    commit(sink_at(folder), 4, 4)
    act(folder)
    act(folder)
    commit(sink_at(folder), 5, 1)
    assert {1, 2, 3, 4} <= {*left, *keys_of(folder)}


def test_a_table_that_is_optimized_vacuumed_and_checkpointed_goes_on(folder: Path) -> None:
    for epoch in range(4, 9):
        for act in (compact, sort, vacuum, checkpoint):
            act(folder)
        commit(sink_at(folder), epoch, epoch, 1)
    assert keys_of(folder) == [*range(1, 9)]


def test_what_others_brought_they_may_take_away(folder: Path) -> None:
    append(folder)
    delete("v = 'theirs'")(folder)
    commit(sink_at(folder), 4, 4)
    assert keys_of(folder) == [1, 2, 3, 4]


def test_other_sinks_may_merge_into_the_table(folder: Path) -> None:
    """They write the files of each other anew."""
    compact(folder)
    other = sink_at(folder, sink_id=SinkId("other"))
    for epoch in (1, 2):
        commit(other, epoch, 10, 10 + epoch)
        commit(sink_at(folder), 3 + epoch, 3 + epoch, 1)
    assert keys_of(folder) == [1, 2, 3, 4, 5, 10, 11, 12]


@pytest.mark.parametrize("wrong", [restore(0), overwrite, delete("k = 2"), update, delete(None)])
@pytest.mark.parametrize("meanwhile", [compact, append, vacuum, None])
def test_a_table_that_is_restored_to_the_newest_epoch_goes_on(
    folder: Path, wrong: Act, meanwhile: Act | None
) -> None:
    wrong(folder)
    if meanwhile is not None and meanwhile is not vacuum:
        meanwhile(folder)
    refusal(sink_at(folder))
    restore(NEWEST)(folder)
    if meanwhile is vacuum:
        meanwhile(folder)
    commit(sink_at(folder), 4, 4)
    assert keys_of(folder) == [1, 2, 3, 4]


def test_a_restore_that_does_not_say_its_version_is_judged_by_its_files(folder: Path) -> None:
    """As one to a moment does."""
    delete("k = 2")(folder)
    restore(NEWEST)(folder)
    entry = folder / "_delta_log" / f"{4:020d}.json"
    entry.write_text(entry.read_text().replace('"version":"2"', '"datetime":"then"'))
    commit(sink_at(folder), 4, 4)
    assert keys_of(folder) == [1, 2, 3, 4]


def test_a_restore_to_a_version_after_the_loss_makes_nothing_good(folder: Path) -> None:
    delete("k = 2")(folder)
    append(folder)
    restore(3)(folder)
    assert "version 3 of the Delta table (DELETE" in refusal(sink_at(folder))


# --- what was meant -------------------------------------------------------------------------------


def test_changes_are_accepted_up_to_a_version(folder: Path) -> None:
    """And no further."""
    delete("k = 2")(folder)
    refusal(sink_at(folder, accept_changes_until=2))
    accepting = sink_at(folder, accept_changes_until=3)
    commit(accepting, 4, 4)
    assert keys_of(folder) == [1, 3, 4]
    delete("k = 3")(folder)
    assert "version 5 of the Delta table (DELETE" in refusal(accepting, 5)
    commit(sink_at(folder, accept_changes_until=math.inf), 5, 5)
    assert keys_of(folder) == [1, 4, 5]


def test_a_table_with_doubled_rows_is_mended_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is of a type whose rows were doubled."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "lake" / "accounts"
    first, other = Decimal(2**53 + 1), Decimal(2**53)
    accounts = pa.array([first, other], pa.decimal128(20, 0))
    old = pa.table({"account": accounts, "updated_at": [1, 1], "v": ["old", "only"]})
    sink = sink_at(folder, key=("account",))
    sink.commit(EpochNumber(1), staged(old))
    new = old.slice(0, 1).set_column(1, "updated_at", pa.array([2]))
    write_deltalake(str(folder), new, mode="append")
    assert sink.repeated_keys().count == 1
    page = (Path(__file__).parents[3] / "docs" / "sinks-delta.md").read_text()
    (script,) = (part for part in page.split("```") if "mended" in part and "import" in part)
    exec(dedent(script.removeprefix("python\n")), {})
    version = table(folder).version()
    assert f"accept_changes_until = '{version}'" in refusal(sink, 2, old)
    sink = sink_at(folder, key=("account",), accept_changes_until=version)
    sink.commit(EpochNumber(2), staged(old.slice(1)))
    assert sink.repeated_keys().count == 0
    found = table(folder).to_pyarrow_table().select(["account", "updated_at"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(other, 1), (first, 2)]


# --- cost -----------------------------------------------------------------------------------------


def test_only_what_came_after_the_newest_epoch_is_read() -> None:
    asked: list[int] = []
    theirs = '{"add":{"path":"x","dataChange":true}}'
    entries = {8: '{"txn":{"appId":"mine","version":1}}', 9: theirs, 10: theirs}

    def read(version: int) -> str | None:
        asked.append(version)
        return entries[version]

    others.check_others("mine", 10, others.NO_VERSION, read)
    assert asked == [10, 9, 8]
    asked.clear()
    others.check_others("mine", 10, 9, read)
    assert asked == [10]
    asked.clear()
    others.check_others("mine", 10, math.inf, read)
    assert asked == []

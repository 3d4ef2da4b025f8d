"""`laminar epochs`: the history of a pipeline, and the dossier of an epoch."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from laminar_dagster.cli.epochs.ranges import ranges_table
from laminar_dagster.cli.tables import Line, Table
from laminar_dagster.core import layout
from laminar_dagster.core.errors import SinkUnavailable
from laminar_dagster.core.ids import EpochNumber, SourceId
from laminar_dagster.core.offsets import CustomIdentity, FilePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.epoch import EpochRunner
from tests.unit.cli.conditions import History, Project, flip_bit
from tests.unit.runtime.memory_reference import MemoryReference


@pytest.fixture
def history(project: Project) -> History:
    """Four epochs, of which the first two are collected."""
    history = project.history(4)
    retention = Retention(2, timedelta(0))
    collect(history.checkpoints, retention, SystemClock().now())
    assert history.checkpoints.manifest(history.ids[1]) is None
    return history


def test_lists_the_epochs_the_newest_first(project: Project, history: History) -> None:
    rows = project.laminar.json("epochs", "list")
    assert [row["epoch"] for row in rows] == [4, 3, 2, 1]
    assert [row["state"] for row in rows] == ["done", "done", "collected", "collected"]
    assert [row["is_latest"] for row in rows] == [True, False, False, False]
    assert {row["counts"]["read"] for row in rows} == {4}
    told = project.laminar("epochs", "list").stdout.splitlines()
    assert [line.rstrip().rpartition("  ")[2] for line in told] == [
        "STATE", "latest", "done", "done, collected", "done, collected",
    ]  # fmt: skip


def test_a_limit_cuts_the_list(project: Project, history: History) -> None:
    assert [row["epoch"] for row in project.laminar.json("epochs", "list", "--limit", "2")] == [
        4,
        3,
    ]
    told = project.laminar("epochs", "list", "clicks", "--limit", "2").stdout
    assert "The newest 2 of 4; --limit all shows every one." in told
    assert len(project.laminar.json("epochs", "list", "--limit", "all")) == 4


def test_without_an_epoch(project: Project) -> None:
    assert project.laminar.json("epochs", "list") == []
    assert "has no epoch yet" in project.laminar("epochs", "list").stdout
    error = project.laminar.error("epochs", "show", "1", exit_code=2)
    assert error["kind"] == "no_epochs"
    assert not project.store.exists()
    project.store.mkdir(parents=True)
    assert project.laminar.error("epochs", "show", "1", exit_code=2)["kind"] == "no_epochs"


def test_shows_an_epoch_whole(project: Project, history: History) -> None:
    document = project.laminar.json("epochs", "show", "4")
    assert (document["state"], document["is_latest"], document["next_step"]) == ("done", True, None)
    assert document["manifest"]["checkpoint_id"] == history.ids[4]
    assert document["manifest"]["previous_checkpoint_id"] == history.ids[3]
    assert document["plan"]["sources"][0]["ranges"][0]["start"]["offset"] == 9
    told = project.laminar("epochs", "show", "4").stdout
    assert "status:      done: every sink has it, and it is the latest" in told
    assert f"parent:      {history.ids[3]}" in told
    assert "numbers  numbers/0  offset 9  offset 12  3 records" in told
    assert "4 read = 4 processed" in told
    for title in ("Ranges: ", "Operators\n", "Sinks\n", "Files, and the epoch that wrote them\n"):
        assert f"\n\n{title}" in told
    # The ranges say where each source stands; it is not told twice.
    assert "\nSources\n" not in told


def test_shows_which_copies_of_reference_tables_an_epoch_sees(project: Project) -> None:
    table = MemoryReference(freshness=ReferenceFreshness(timedelta(0), keeps_when_away=True))
    history = History(project.store, tables=(table,)).run(2)
    (first,) = history.manifest(1).references
    told = project.laminar("epochs", "show", "2").stdout
    assert "\n\nReference tables: which copy it sees of each\n" in told
    assert first.copy_id in told and "version one" in told
    assert first.key_of(first.files[0]) in told, "it is a file that the epoch needs"
    (found,) = project.laminar.json("epochs", "show", "2")["references"]
    assert (found["reference"], found["epoch"], found["copy_id"]) == ("fruit", 1, first.copy_id)
    assert (found["rows"], found["size_bytes"], found["is_kept"]) == (1, 3, False)
    table.away = True
    history.run(1)
    (found,) = project.laminar.json("epochs", "show", "3")["references"]
    assert (found["copy_id"], found["is_kept"]) == (first.copy_id, True)
    assert found["unavailable_since"] == "2026-01-01T11:59:00Z"
    for command in (("epochs", "show", "3"), ("checkpoints", "show", "latest")):
        assert "kept: away since 2026-01-01 11:59:00 UTC" in project.laminar(*command).stdout
    # What is kept of it when its checkpoint is collected.
    collect(history.checkpoints, Retention(1, timedelta(0)), SystemClock().now())
    (found,) = project.laminar.json("epochs", "show", "1")["references"]
    assert found["copy_id"] == first.copy_id


def test_a_collected_epoch_tells_what_is_kept(project: Project, history: History) -> None:
    told = project.laminar("epochs", "show", "1").stdout
    assert "status:      done; its checkpoint is collected, its figures are kept" in told
    assert "4 read = 4 processed" in told
    assert "Its files are collected" in told
    assert "staged/" not in told
    # Its plan is gone with it; how far it read is in the record of its winner.
    assert "\nSources\n" in told
    document = project.laminar.json("epochs", "show", "1")
    assert (document["state"], document["plan"]) == ("collected", None)
    assert document["manifest"]["counts"]["read"] == 4


def test_a_planned_epoch_tells_what_it_will_read(project: Project, history: History) -> None:
    history.arrive()
    steps.plan(history.pipeline(), EpochNumber(5))
    # A mistake in the SQL is no obstacle: the sinks have no say yet.
    (project.folder / "sources.sql").write_text("nonsense")
    document = project.laminar.json("epochs", "show", "5")
    assert (document["state"], document["next_step"]) == ("planned", "Compute")
    assert document["manifest"] is None
    told = project.laminar("epochs", "show", "5").stdout
    assert "next step:   compute: its plan is fixed" in told
    assert f"parent:      {history.ids[4]}" in told
    assert "sinks:       table" in told
    assert "numbers  numbers/0  offset 12  offset 15  3 records" in told
    (newest, *_) = project.laminar.json("epochs", "list")
    assert newest == {"epoch": 5, "state": "planned", "is_latest": False}
    assert "planned, not computed" in project.laminar("epochs", "list").stdout


def test_a_committed_epoch_waits_for_its_sinks(project: Project, history: History) -> None:
    history.arrive()
    history.table.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(history.pipeline()).run()
    # The sink of the epoch is not one of the project's: it was removed, and holds nobody back.
    document = project.laminar.json("epochs", "show", "5")
    assert (document["state"], document["next_step"]) == ("committed", "MoveLatest")
    assert "committed, not in every sink" in project.laminar("epochs", "list").stdout


def test_an_epoch_that_has_not_begun_is_unknown(project: Project, history: History) -> None:
    error = project.laminar.error("epochs", "show", "5", exit_code=2)
    assert error["kind"] == "unknown_epoch"
    assert error["message"] == "there is no epoch 5: the newest is 4"
    for wrong in ("0", "x", "-1"):
        assert project.laminar("epochs", "show", wrong).exit_code == 2


def test_a_damaged_epoch_hides_no_other(project: Project, history: History) -> None:
    flip_bit(history.root / layout.prepared_key(EpochNumber(3)))
    told = project.laminar("epochs", "list")
    assert told.exit_code == 0
    assert "damaged: " in told.stdout
    assert told.stderr.startswith("warning: epoch 3 is damaged: ")
    states = [row["state"] for row in project.laminar.json("epochs", "list")]
    assert states == ["done", "damaged", "collected", "collected"]
    error = project.laminar.error("epochs", "show", "3", exit_code=4)
    assert error["kind"] == "checksum_mismatch"


def test_idle_partitions_are_marked_and_many_ranges_are_cut(history: History) -> None:
    plan = history.checkpoints.plan(EpochNumber(4))
    assert plan
    ranges = tuple(
        SourceRange(
            start=FilePosition(path=f"file-{n:03}", byte_offset=0),
            end=FilePosition(path=f"file-{n:03}", byte_offset=n * 512),
        )
        for n in range(99)
    )
    source = SourcePlan(
        source_id=SourceId("files"),
        identity=CustomIdentity(source_type="x", identity="y"),
        ranges=ranges,
        idle=(ranges[0].end,),
    )
    many = msgspec.structs.replace(plan, sources=(source,))
    table, line = ranges_table(many, None, every_row=False)
    assert isinstance(table, Table)
    assert isinstance(line, Line)
    assert line.text == "49 more; --files shows every one."
    assert table.rows[0] == ("files", "file-000", "byte 0", "byte 0", "nothing", "", "idle")
    assert table.rows[2][4:] == ("1.0 KiB", "", "")
    (table,) = ranges_table(many, None, every_row=True)
    assert isinstance(table, Table)
    assert len(table.rows) == 99

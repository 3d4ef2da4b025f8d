"""`laminar status`: how far a pipeline is, without touching it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from laminar_dagster.cli import status
from laminar_dagster.cli.standing import describe_step
from laminar_dagster.core import layout, protocol
from laminar_dagster.core.errors import EpochTaken, SinkUnavailable
from laminar_dagster.core.ids import BranchName, CheckpointId, EpochNumber, SinkId, SourceId
from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.core.upkeep import Promotion
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.assembly import Adapters
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.memory_pipeline import MemorySink, MemorySource, MemoryTable
from tests.unit.cli.conditions import History, Project, flip_bit
from tests.unit.runtime.memory_reference import MemoryReference
from tests.unit.runtime.observed import ObservedSource, ReadingEngine
from tests.unit.runtime.test_backlog import AwaySource

Connect = Callable[[History], None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Let the project's pipeline be one in memory."""

    def connect(history: History) -> None:
        adapters = Adapters((MemorySource(history.log),), (MemorySink(history.table),))
        monkeypatch.setattr(status, "build_adapters", lambda *_args: adapters)

    return connect


def test_before_the_first_epoch(project: Project) -> None:
    before = project.files()
    told = project.laminar("status")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "last epoch:  no epoch yet" in told.stdout
    assert ".laminar/clicks/store (made by the first epoch)" in told.stdout
    assert "50.1 KiB in 2 of 2 partitions" in told.stdout
    assert told.stdout.count("nothing committed yet") == 3
    assert "`laminar run clicks` reads what waits." in told.stdout
    document = project.laminar.json("status")
    assert document["store"] is document["last_epoch"] is document["is_changed"] is None
    assert [each["state"] for each in document["sinks"]] == ["new", "new", "new"]
    # Neither the store nor a sink's database was made.
    assert project.files() == before


def test_after_some_epochs(project: Project, connect: Connect) -> None:
    history = project.history(3)
    connect(history)
    history.arrive()
    before = project.files()
    document = project.laminar.json("status")
    last = document["last_epoch"]
    assert (last["epoch"], last["checkpoint_id"], last["is_latest"]) == (3, history.ids[3], True)
    assert last["committed_at"] == "2026-01-01T11:59:00Z"
    assert document["is_changed"] is True
    assert document["unfinished"] == []
    assert document["sources"] == [
        {
            "source": "numbers",
            "partitions": 2,
            "partitions_waiting": 2,
            "waiting": 4,
            "unit": "records",
            "is_empty": False,
            "error": None,
            "lag": [
                {"partition": "numbers/0", "lag": 3, "headroom": None},
                {"partition": "numbers/1", "lag": 1, "headroom": None},
            ],
            "health": {
                "healthy": True,
                "message": "answers",
                "total_lag": None,
                "headroom": None,
                "last_success": "2026-01-01T11:59:00Z",
                "details": {},
            },
            "reading": None,
        }
    ]
    assert document["warnings"] == []
    assert document["sinks"] == [{"sink": "table", "state": "at", "ledger": 3, "error": None}]
    told = project.laminar("status").stdout
    assert "last epoch:  3, committed 2026-01-01 11:59:00 UTC" in told
    assert f"{history.ids[3]}, every sink has it" in told
    assert "changed: epoch 3 ran code-1" in told
    assert "4 records in 2 of 2 partitions" in told
    assert "at epoch 3" in told
    assert project.files() == before


def test_an_unfinished_epoch_and_its_next_step(project: Project, connect: Connect) -> None:
    history = project.history(2)
    connect(history)
    history.table.is_away = True
    history.arrive()
    with pytest.raises(SinkUnavailable):
        EpochRunner(history.pipeline()).run()
    document = project.laminar.json("status")
    assert document["last_epoch"]["epoch"] == 3
    assert document["last_epoch"]["is_latest"] is False
    assert document["unfinished"] == [
        {"epoch": 3, "next_step": "AwaitSinks", "description": "wait for table"}
    ]
    assert document["sinks"][0]["state"] == "away"
    told = project.laminar("status").stdout
    assert "away: sink table is away: it is away" in told
    assert "not every sink has it yet" in told
    history.table.is_away = False
    (unfinished,) = project.laminar.json("status")["unfinished"]
    assert unfinished["description"] == "commit to table"
    told = project.laminar("status").stdout
    assert "behind by 1 epoch" in told
    assert "`laminar run clicks` finishes what is unfinished." in told


def test_a_promotion_is_finished_by_the_version_that_it_is_for(
    project: Project, connect: Connect
) -> None:
    history = project.history(2)
    connect(history)
    promotion = Promotion(
        branch=BranchName("fix"), checkpoint_id=history.ids[2], manifest_checksum="0" * 64
    )
    plan_upkeep(history.pipeline(), promotion)
    told = project.laminar("status").stdout
    assert "`laminar promote clicks fix` finishes what is unfinished, with the project as" in told
    assert "`laminar run clicks`" not in told


def test_a_sink_that_is_ahead_is_no_mere_difference(project: Project, connect: Connect) -> None:
    history = project.history(2)
    connect(history)
    history.table.ledger = EpochNumber(9)
    assert project.laminar.json("status")["sinks"][0]["state"] == "ahead"
    assert "ahead: the newest checkpoint is of epoch 2" in project.laminar("status").stdout


def test_what_is_away_hides_nothing_else(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    history = project.history(1)
    sources = (AwaySource(history.log, SourceId("away")), MemorySource(history.log))
    sinks = (MemorySink(MemoryTable(is_away=True), SinkId("b")), MemorySink(history.table))
    monkeypatch.setattr(status, "build_adapters", lambda *_args: Adapters(sources, sinks))
    document = project.laminar.json("status")
    assert [each["is_empty"] for each in document["sources"]] == [None, True]
    assert document["sources"][0]["error"]["kind"] == "source_unavailable"
    health = [each["health"] for each in document["sources"]]
    assert [each["healthy"] for each in health] == [False, True]
    assert health[0]["message"] == "source away is away: no route to host"
    assert [each["state"] for each in document["sinks"]] == ["away", "at"]
    told = project.laminar("status").stdout
    assert "cannot be asked: source away is away: no route to host" in told
    assert "nothing waits, 2 partitions" in told


def observed(
    project: Project, monkeypatch: pytest.MonkeyPatch, partitions: int = 2
) -> tuple[History, ObservedSource]:
    """Two epochs of a source that tells how it does, and more that waits."""
    history = History(project.store)
    history.log.partitions = [[] for _ in range(partitions)]
    engine = ReadingEngine(history.checkpoints.objects, history.log)
    pipeline = replace(history.pipeline(), engine=engine)
    for _ in range(2):
        history.arrive()
        EpochRunner(pipeline).run()
    history.arrive()
    source = ObservedSource(history.log)
    adapters = Adapters((source,), (MemorySink(history.table),))
    monkeypatch.setattr(status, "build_adapters", lambda *_args: adapters)
    return history, source


def test_a_source_tells_how_it_does_and_what_was_read(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = observed(project, monkeypatch)
    source.headroom = 0.5
    (document,) = project.laminar.json("status")["sources"]
    assert document["lag"] == [
        {"partition": "numbers/0", "lag": 3, "headroom": 0.5},
        {"partition": "numbers/1", "lag": 1, "headroom": None},
    ]
    assert document["health"] == {
        "healthy": True,
        "message": "connected to 1 broker(s), lag 4",
        "total_lag": 4,
        "headroom": 0.5,
        "last_success": "2026-01-01T11:59:00Z",
        "details": {"brokers": "1", "group_id": "readers"},
    }
    assert document["reading"] == {
        "records": 4,
        "size_bytes": 1000,
        "chunks": 2,
        "fetch_seconds": 0.5,
        "decode_seconds": 0.25,
        "fetched_per_second": 8,
        "decoded_per_second": 16,
        "pauses": 3,
        "errors": 4,
        "chunk_p99_milliseconds": 8,
        "dead_letters": 1,
        "late": 2,
        "ahead": 5,
        "schema_ids": [7, 9],
    }
    told = project.laminar("status").stdout
    assert "numbers  connected to 1 broker(s), lag 4" in told
    lines = [line.split() for line in told.splitlines()]
    assert ["numbers", "numbers/0", "3", "50.0%"] in lines
    assert ["numbers", "numbers/1", "1", "-"] in lines
    assert "Read in epoch 2" in told
    assert ["numbers", "4", "1000", "B", "8", "16", "3", "4", "1", "2", "5"] in lines
    assert "warning" not in told


def test_records_that_may_expire_unread_are_a_warning(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = observed(project, monkeypatch)
    source.headroom = 0.0999
    (warning,) = project.laminar.json("status")["warnings"]
    assert warning.startswith("source numbers: numbers/0 may soon delete records that were not")
    told = project.laminar("status").stdout
    assert f"warning: {warning}" in told
    assert "10.0% of what it holds has been read" in told
    with (project.folder / "pipeline.yml").open("a") as file:
        file.write("\nchecks: {min_retention_headroom: 0.05}\n")
    assert "warning" not in project.laminar("status").stdout


def test_a_watermark_that_is_ahead_of_now_is_a_warning(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest second that a calendar has, as a record moved it before there was a bound."""
    monkeypatch.setattr("tests.unit.runtime.observed.NEWEST", 253_402_300_799_000_000)
    observed(project, monkeypatch)
    first, second = project.laminar.json("status")["warnings"]
    assert first.startswith("source numbers, numbers/0: the watermark, 9999-12-31T23:59:59Z, is ")
    assert "days" in first and "what comes for the time until then is late" in first
    assert second.startswith("source numbers, numbers/1: the watermark, 9999-12-31T23:59:58.999999")
    assert f"warning: {first}" in project.laminar("status").stdout


def test_of_many_partitions_those_with_the_most_lag_are_shown(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed(project, monkeypatch, partitions=25)
    told = project.laminar("status").stdout
    assert told.index("numbers/0 ") < told.index("numbers/1 ")
    assert "5 partitions with less; `--json` lists them all." in told
    (document,) = project.laminar.json("status")["sources"]
    assert len(document["lag"]) == 25


# --- reference tables -----------------------------------------------------------------------------

DECLARED = """
CREATE REFERENCE TABLE fruit (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id))
WITH (connector = 'file', path = 'fruit.csv', format = 'csv');
"""


@pytest.fixture
def fruit(project: Project, monkeypatch: pytest.MonkeyPatch) -> MemoryReference:
    """The reference table of the project's pipeline, which is one in memory."""
    with (project.folder / "sources.sql").open("a") as file:
        file.write(DECLARED)
    table = MemoryReference(freshness=ReferenceFreshness(timedelta(0), keeps_when_away=True))
    monkeypatch.setattr(status, "build_adapters", lambda *_args: Adapters((), (), (table,)))
    return table


def test_a_reference_table_before_its_first_copy(project: Project, fruit: MemoryReference) -> None:
    (document,) = project.laminar.json("status")["references"]
    assert document == {
        "reference": "fruit",
        "connector": "file",
        "copy": None,
        "age_seconds": None,
        "next_look_at": None,
        "is_looked_at_next": True,
        "keeps_when_away": True,
    }
    assert "with the next epoch  not copied yet" in project.laminar("status").stdout


def test_a_reference_table_and_the_copy_that_is_used(
    project: Project, fruit: MemoryReference
) -> None:
    History(project.store, tables=(fruit,)).run(2)
    (document,) = project.laminar.json("status")["references"]
    copy = document.pop("copy")
    assert document.pop("age_seconds") > 0
    assert document == {
        "reference": "fruit",
        "connector": "file",
        "next_look_at": "2026-01-01T11:59:00Z",
        "is_looked_at_next": True,
        "keeps_when_away": True,
    }
    assert (copy["epoch"], copy["rows"], copy["size_bytes"], copy["files"]) == (1, 1, 3, 1)
    assert (copy["checked_at"], copy["is_kept"]) == ("2026-01-01T11:59:00Z", False)
    told = project.laminar("status").stdout
    assert "\n\nReference tables\n" in told
    assert "answered at the last look" in told
    assert "warning" not in told


def test_when_a_reference_table_is_looked_at_next(project: Project, fruit: MemoryReference) -> None:
    History(project.store, tables=(fruit,)).run(1)
    fruit.freshness = ReferenceFreshness(timedelta(days=365_000))
    (document,) = project.laminar.json("status")["references"]
    assert document["next_look_at"] is not None and not document["is_looked_at_next"]
    assert "  in 36" in project.laminar("status").stdout
    for never in (None, timedelta.max):
        fruit.freshness = ReferenceFreshness(never)
        (document,) = project.laminar.json("status")["references"]
        assert document["next_look_at"] is None and not document["is_looked_at_next"]
        assert "  never  " in project.laminar("status").stdout
    fruit.declaration = "e" * 64
    (document,) = project.laminar.json("status")["references"]
    assert document["copy"] is None and document["is_looked_at_next"]
    assert "declared otherwise than its copy" in project.laminar("status").stdout


def test_a_reference_table_that_is_away_is_a_warning_from_its_plan_on(
    project: Project, fruit: MemoryReference
) -> None:
    history = History(project.store, tables=(fruit,)).run(1)
    fruit.away = True
    history.arrive()
    # Nothing has come of the plan yet.
    steps.plan(history.pipeline(), EpochNumber(2))
    document = project.laminar.json("status")
    (found,) = document["references"]
    assert found["copy"]["is_kept"]
    assert found["copy"]["unavailable_since"] == "2026-01-01T11:59:00Z"
    (warning,) = document["warnings"]
    assert warning.startswith(
        "reference table fruit has been away since 2026-01-01 11:59:00 UTC: epochs go on with its "
        "copy (on_unavailable = 'keep'), last found right "
    )
    told = project.laminar("status").stdout
    assert "kept: away since 2026-01-01 11:59:00 UTC" in told
    assert f"warning: {warning[:60]}" in told


def test_a_damaged_store_is_told_with_what_is_damaged_and_what_to_do(
    project: Project, connect: Connect
) -> None:
    history = project.history(2)
    connect(history)
    flip_bit(history.root / layout.manifest_key(history.ids[2]))
    document = project.laminar.json("status", exit_code=4)
    assert document["error"]["kind"] == "checksum_mismatch"
    assert document["sinks"] == [{"sink": "table", "ledger": 2}]
    told = project.laminar("status")
    assert told.exit_code == 4
    assert layout.manifest_key(history.ids[2]) in told.stdout
    assert "sink table: at epoch 2" in told.stdout
    assert "`laminar recover clicks` mends it" in told.stdout
    shutil.rmtree(history.root)
    assert project.laminar.json("status")["last_epoch"] is None


def test_looking_needs_neither_spark_nor_dagster(project: Project) -> None:
    # Nor pandera, although there is a contract: it would take whatever it finds.
    program = """
import sys
from laminar_dagster.cli.main import cli
for args in (["status"], ["plan"], ["epochs", "list"], ["sql", "SHOW SOURCES"]):
    try:
        cli.main(["--project", sys.argv[1], *args])
    except SystemExit as done:
        assert done.code == 0, args
heavy = {"boto3", "dagster", "pandas", "pandera", "py4j", "pyspark", "rich"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    args = [sys.executable, "-c", program, str(project.root)]
    assert subprocess.run(args, capture_output=True, text=True).stderr == "[]\n"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (protocol.Plan(), "plan what it reads"),
        (protocol.Compute(), "compute: its plan is fixed, and nothing is published yet"),
        (protocol.Gate(CheckpointId("01890000-0000-7000-8000-000000000000")), "check the output"),
        (protocol.CommitSinks((SinkId("a"), SinkId("b"))), "commit to a, b"),
        (protocol.AwaitEpoch(EpochNumber(4)), "wait for epoch 4"),
        (protocol.Halt(EpochTaken(4, "x")), "stop: epoch 4 belongs to attempt x"),
        (protocol.Finished(), "nothing"),
    ],
)
def test_a_step_in_words(step: protocol.Step, words: str) -> None:
    assert describe_step(step) == words

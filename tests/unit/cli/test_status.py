"""`laminar status`: how far a pipeline is, without touching it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from laminar_dagster.cli import status
from laminar_dagster.cli.standing import describe_step
from laminar_dagster.core import layout, protocol
from laminar_dagster.core.errors import EpochTaken, SinkUnavailable
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SinkId, SourceId
from laminar_dagster.runtime.adapters import Adapters
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.testing.memory_pipeline import MemorySink, MemorySource, MemoryTable
from tests.unit.cli.conditions import History, Project, flip_bit
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
        }
    ]
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
    assert [each["state"] for each in document["sinks"]] == ["away", "at"]
    told = project.laminar("status").stdout
    assert "cannot be asked: source away is away: no route to host" in told
    assert "nothing waits, 2 partitions" in told


def test_a_damaged_store_is_an_integrity_error(project: Project, connect: Connect) -> None:
    history = project.history(2)
    connect(history)
    flip_bit(history.root / layout.manifest_key(history.ids[2]))
    assert project.laminar.error("status", exit_code=4)["kind"] == "checksum_mismatch"
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

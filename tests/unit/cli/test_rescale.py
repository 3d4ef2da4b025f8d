"""``laminar rescale``, ``laminar plan`` and ``laminar run`` on another number of buckets."""

from __future__ import annotations

from typing import Any

import click
import pytest

from laminar_dagster.cli import rescale
from laminar_dagster.config.definition import define
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.assembly import known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.rescale import rescale_needed, state_sizes
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from tests.unit.cli.conditions import Project


class Running:
    """A project whose pipeline computes in memory, with the definition that its files give."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.log = MemoryLog([[1, 2, 3], [4]])
        self.table = MemoryTable()

    def open(self, *_arguments: object, **_options: object) -> Pipeline:
        model = self.model()
        store = LocalStore(self.project.store)
        return Pipeline(
            name=model.config.name,
            fingerprint=model.fingerprint,
            checkpoints=CheckpointStore(store),
            engine=MemoryEngine(store, self.log),
            sources=(MemorySource(self.log),),
            sinks=(MemorySink(self.table),),
            definition=define(model),
        )

    def model(self) -> PipelineModel:
        return load_pipeline(self.project.folder, connectors=known_connectors())

    def run(self) -> None:
        self.log.partitions[0].append(5)
        EpochRunner(self.open()).run()

    def write(self, buckets: int) -> None:
        path = self.project.folder / "pipeline.yml"
        lines = [line for line in path.read_text().splitlines() if "buckets:" not in line]
        path.write_text("\n".join([*lines, f"buckets: {buckets}"]) + "\n")

    def manifest(self, epoch: int) -> CheckpointManifest:
        return self.open().checkpoints.winner(EpochNumber(epoch)).manifest


@pytest.fixture
def running(project: Project, monkeypatch: pytest.MonkeyPatch) -> Running:
    """After two epochs on four buckets."""
    running = Running(project)
    monkeypatch.setattr(rescale, "open_pipeline", running.open)
    running.write(4)
    running.run()
    running.run()
    return running


def told(running: Running, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = running.project.laminar.json("rescale", *args)
    return found


def test_a_changed_number_is_refused_until_it_is_rescaled(running: Running) -> None:
    running.write(6)
    laminar = running.project.laminar
    found = laminar.json("plan", exit_code=3)
    assert found["verdict"] == "rescale"
    assert found["operators"][0]["verdict"] == "rescale"
    assert "its state is spread over 4 buckets, not 6" in found["operators"][0]["reasons"]
    assert "laminar rescale" in laminar("plan").stdout
    before, after = running.manifest(2), told(running)
    operators = after.pop("operators")
    assert after.pop("seconds") >= 0
    assert after == {
        "pipeline": "clicks",
        "is_needed": True,
        "is_done": True,
        "buckets_before": 4,
        "buckets_after": 6,
        "epoch": 3,
        "checkpoint_id": running.manifest(3).checkpoint_id,
    }
    (size,), (now,) = state_sizes(before).values(), state_sizes(running.manifest(3)).values()
    assert operators == [
        {
            "operator": "totals",
            "files_before": size.files,
            "bytes_before": size.size_bytes,
            "files_after": now.files,
            "bytes_after": now.size_bytes,
        }
    ]
    assert size.files != now.files
    assert laminar.json("plan")["verdict"] == "keep"
    running.run()
    assert sorted(running.table.rows) == running.log.expected()


def test_people_are_told_the_same(running: Running) -> None:
    running.write(1)
    result = running.project.laminar("rescale")
    assert result.exit_code == 0
    assert "Pipeline clicks: from 4 to 1 bucket in epoch 3, " in result.stdout
    assert "FILES NOW" in result.stdout
    shown = running.project.laminar("epochs", "show", "3")
    assert "rescale from 4 to 1 bucket; it read no record" in shown.stdout
    plan = running.project.laminar.json("epochs", "show", "3")["plan"]
    assert plan["upkeep"] == {"type": "rescale", "buckets_before": 4, "buckets_after": 1}


@pytest.mark.parametrize("args", [(), ("--buckets", "4"), ("--dry-run",)])
def test_nothing_to_do_is_said(running: Running, args: tuple[str, ...]) -> None:
    found = told(running, *args)
    assert (found["is_needed"], found["is_done"], found["epoch"]) == (False, False, None)
    assert (found["buckets_before"], found["buckets_after"]) == (4, 4)
    said = running.project.laminar("rescale", *args)
    assert said.stdout == "Pipeline clicks: nothing to do, its state fits 4 buckets.\n"


def test_before_the_first_epoch_there_is_nothing_to_do(project: Project) -> None:
    assert project.laminar.json("rescale")["is_needed"] is False


def test_a_dry_run_does_nothing(running: Running) -> None:
    running.write(2)
    files = running.project.files()
    found = told(running, "--dry-run")
    assert (found["is_needed"], found["is_done"], found["epoch"]) == (True, False, None)
    assert (found["buckets_before"], found["buckets_after"]) == (4, 2)
    assert found["operators"][0]["files_after"] is None
    said = running.project.laminar("rescale", "--dry-run")
    assert "would go from 4 to 2 buckets. Nothing is done." in said.stdout
    assert running.project.files() == files


def test_the_file_has_the_say(running: Running) -> None:
    error = running.project.laminar.error("rescale", "--buckets", "6", exit_code=2)
    assert error["kind"] == "invalid_config"
    assert "pipeline.yml: it says 4 buckets, and not 6" in error["message"]
    assert error["hint"].startswith("write `buckets: 6` there")
    assert running.project.laminar("rescale", "--buckets", "0").exit_code == 2


def test_another_obstacle_is_refused(running: Running) -> None:
    running.write(6)
    folder = running.project.folder / "models"
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("INTERVAL '1' MINUTE", "INTERVAL '2' MINUTE"))
    assert running.project.laminar.json("plan", exit_code=3)["verdict"] == "rebuild"
    error = running.project.laminar.error("rescale", exit_code=3)
    assert error["kind"] == "state_incompatible"


def test_an_epoch_on_the_way_comes_first(running: Running) -> None:
    steps.plan(running.open(), EpochNumber(3))
    running.write(6)
    for args in ((), ("--dry-run",)):
        error = running.project.laminar.error("rescale", *args, exit_code=75)
        assert error["kind"] == "upkeep_waits"
        assert "as it was when the epoch was planned" in error["hint"]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_rescale_that_was_interrupted_is_finished(running: Running, is_committed: bool) -> None:
    running.write(6)
    needed = rescale_needed(define(running.model()), running.open().checkpoints)
    assert needed
    pipeline = running.open()
    epoch = plan_upkeep(pipeline, needed.upkeep)
    if is_committed:
        EpochRunner(pipeline).prepare(epoch)
        steps.write_manifest(pipeline, epoch)
    said = running.project.laminar("rescale", "--dry-run")
    assert "which epoch 3 has begun" in said.stdout
    found = told(running)
    assert (found["epoch"], found["is_done"], found["buckets_before"]) == (3, True, 4)
    assert running.table.ledger == 3
    assert told(running)["is_needed"] is False


def test_the_command_says_what_it_does() -> None:
    assert isinstance(rescale.command, click.Command)
    assert "epoch of its own" in (rescale.command.help or "")

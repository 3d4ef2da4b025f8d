"""Pipelines from Python, in a project of `laminar init`: the page, the notebook, the edges."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import laminar_dagster as laminar
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    EpochWithoutCheckpoint,
    NoEpochs,
    NoLetters,
    UnknownEpoch,
    UnknownOperator,
    UnknownPipeline,
    UnknownView,
)
from laminar_dagster.runtime.loop import EpochDone, Event
from tests.unit.cli.conditions import Laminar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python-api.md"
NOTEBOOK = ROOT / "examples" / "notebook" / "pipeline.ipynb"


def new_project(root: Path) -> Path:
    assert Laminar()("init", str(root), "--name", "clicks").exit_code == 0
    return root


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A project of two epochs."""
    root = new_project(tmp_path_factory.mktemp("facade") / "shop")
    file = root / "dbt_like_configs" / "clicks" / "pipeline.yml"
    file.write_text(file.read_text().replace("max_records: 100000", "max_records: 400"))
    assert [each.number for each in laminar.open(root).pipeline().run()] == [1, 2]
    return root


@pytest.fixture
def pipeline(ran: Path, tmp_path: Path) -> laminar.ProjectPipeline:
    """Of the test's own copy."""
    return laminar.open(shutil.copytree(ran, tmp_path / "shop")).pipeline("clicks")


@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_project(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) > 6
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {})


def test_the_notebook_has_the_blocks_of_the_page() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert [each.strip() for each in code] == [each.strip() for each in blocks]


def test_rows_are_those_of_the_sink(pipeline: laminar.ProjectPipeline) -> None:
    epochs = pipeline.epochs()
    tables = [pipeline.read("clicks_per_minute", each.number).to_arrow() for each in epochs]
    read = sorted((row["page"], row["clicks"]) for table in tables for row in table.to_pylist())
    assert read
    database = pipeline.project.root / "output" / "clicks.db"
    with closing(sqlite3.connect(database)) as connection:
        published = connection.execute("SELECT page, clicks FROM clicks_per_minute").fetchall()
    assert read == sorted(published)
    # By the sink's own name, and as other libraries take it.
    by_sink = pipeline.read(str(pipeline.model.sinks[0].sink_id))
    assert pa.table(by_sink).equals(by_sink.to_arrow())
    assert len(by_sink) == by_sink.to_pandas().shape[0]


def test_rows_as_a_frame_of_spark(pipeline: laminar.ProjectPipeline) -> None:
    rows = pipeline.read("clicks_per_minute", 1)
    frame = rows.to_spark()
    assert sorted(each["clicks"] for each in frame.collect()) == sorted(
        rows.to_arrow().column("clicks").to_pylist()
    )


def test_epochs_and_status_say_what_the_command_says(pipeline: laminar.ProjectPipeline) -> None:
    command = Laminar(before=("--project", str(pipeline.project.root)))
    told = command.json("epochs", "list")
    mine = pipeline.epochs()
    assert [(each.number, each.state, each.checkpoint_id, each.rows_out) for each in mine] == [
        (each["epoch"], each["state"], each["checkpoint_id"], each["rows_out"]) for each in told
    ]
    assert [each.number for each in pipeline.epochs(limit=1)] == [2]
    status = pipeline.status()
    assert status.last_epoch == mine[0]
    assert not status.unfinished
    assert status.backlog.is_empty
    assert {str(each.sink_id): each.state for each in status.sinks} == {
        each["sink"]: each["state"] for each in command.json("status")["sinks"]
    }


def test_dead_letters_have_their_epoch_and_source(pipeline: laminar.ProjectPipeline) -> None:
    command = Laminar(before=("--project", str(pipeline.project.root)))
    told = command.json("dead-letters", "list")["dead_letters"]
    for kind in ("bad", "late"):
        wanted = sum(each["records"] for each in told if each["kind"] == kind)
        assert wanted
        found = pipeline.dead_letters(kind=kind)
        assert len(found) == wanted
        assert found.to_arrow().column_names[:2] == ["epoch", "source"]
    with pytest.raises(NoLetters):
        pipeline.dead_letters(1, source="nobody")
    with pytest.raises(UnknownEpoch, match="there is no epoch 9"):
        pipeline.dead_letters(9)


def test_events_are_heard_while_it_runs(pipeline: laminar.ProjectPipeline) -> None:
    heard: list[Event] = []
    (empty,) = pipeline.run(epochs=1, on_event=heard.append)
    assert [each.report.epoch for each in heard if isinstance(each, EpochDone)] == [3]
    assert (empty.number, empty.state) == (3, "done")
    assert empty.counts is not None and empty.counts.read == 0


def test_what_is_not_there_is_named(pipeline: laminar.ProjectPipeline, tmp_path: Path) -> None:
    with pytest.raises(UnknownPipeline, match="'clickz'") as unknown:
        pipeline.project.pipeline("clickz")
    assert "clicks" in unknown.value.advice()
    with pytest.raises(UnknownView) as view:
        pipeline.read("clicks_per_minut")
    assert "clicks_per_minute" in view.value.advice()
    with pytest.raises(UnknownOperator) as operator:
        pipeline.state("clicks_per_minut")
    assert "clicks_per_minute" in operator.value.advice()
    with pytest.raises(UnknownEpoch):
        pipeline.read("clicks_per_minute", 7)
    fresh = laminar.open(new_project(tmp_path / "fresh")).pipeline()
    assert fresh.epochs() == ()
    assert {each.state for each in fresh.status().sinks} == {"new"}
    assert fresh.status().last_epoch is None
    for ask in (
        lambda: fresh.read("clicks_per_minute"),
        lambda: fresh.state("clicks_per_minute"),
        fresh.dead_letters,
        fresh.verify,
    ):
        with pytest.raises(NoEpochs):
            ask()


def test_a_damaged_file_is_named(pipeline: laminar.ProjectPipeline) -> None:
    for file in pipeline.project.root.rglob("staged/**/*"):
        if file.is_file():
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    with pytest.raises(ChecksumMismatch):
        pipeline.read("clicks_per_minute")


def test_an_epoch_that_is_not_committed_has_no_rows(pipeline: laminar.ProjectPipeline) -> None:
    newest = pipeline.epochs()[0]
    (manifest,) = pipeline.project.root.rglob(f"{newest.checkpoint_id}/manifest.json")
    manifest.unlink()
    with pytest.raises(EpochWithoutCheckpoint):
        pipeline.read("clicks_per_minute", newest.number)

"""`plan`, `verify`, `state` and `dead-letters` on a project that ran on Spark."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.conditions import Laminar, Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW = "models/clicks_per_minute.sql"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A new project, two epochs old."""
    root = tmp_path_factory.mktemp("looking") / "project"
    assert Laminar()("init", str(root), "--name", "clicks").exit_code == 0
    project = Project(root)
    project.edit("pipeline.yml", "max_records: 100000", "max_records: 400")
    document = project.laminar.json("run")
    assert [each["epoch"] for each in document["epochs"]] == [1, 2]
    return root


@pytest.fixture
def project(ran: Path, tmp_path: Path) -> Project:
    """The test's own copy."""
    return Project(Path(shutil.copytree(ran, tmp_path / "project")))


def test_plan_keeps_migrates_and_refuses(project: Project) -> None:
    assert project.laminar.json("plan")["operators"] == [
        {"operator": "clicks_per_minute", "verdict": "keep", "reasons": []}
    ]
    project.edit(VIEW, "COALESCE(SUM(amount), 0)", "CAST(0 AS DECIMAL(20, 2))")
    found = project.laminar.json("plan")
    assert found["verdict"] == "migrate"
    assert found["operators"][0]["reasons"] == ["`sum(amount)` is left out"]
    project.edit(VIEW, "INTERVAL '1' MINUTE", "INTERVAL '2' MINUTE")
    found = project.laminar.json("plan", exit_code=3)
    assert found["verdict"] == "rebuild"
    assert "the window was 60 s, and is 120 s" in found["operators"][0]["reasons"]
    human = project.laminar("plan")
    assert human.exit_code == 3
    assert "Refused" in human.stdout
    # And that is what a run says, before it does anything.
    error = project.laminar.json("run", "--epochs", "1", exit_code=3)["error"]
    assert error["kind"] == "state_incompatible"


def test_plan_tells_of_sinks_and_of_a_pipeline_that_has_not_run(
    project: Project, tmp_path: Path
) -> None:
    project.edit("sinks.sql", "CREATE SINK purchases", "CREATE SINK bought")
    assert project.laminar.json("plan")["others"] == [
        {"kind": "sink", "name": "bought", "change": "new: gets what later epochs put out"},
        {"kind": "sink", "name": "purchases", "change": "no longer there; nothing is removed"},
    ]
    new = tmp_path / "new"
    assert Laminar()("init", str(new)).exit_code == 0
    found = Project(new).laminar.json("plan")
    assert (found["last_epoch"], found["verdict"]) == (None, "keep")
    assert found["operators"][0]["verdict"] == "new"
    assert "Nothing to keep" in Project(new).laminar("plan").stdout
    assert not (new / ".laminar").exists()


def test_verify_runs_every_epoch_again(project: Project) -> None:
    found = project.laminar.json("verify", "--epoch", "1", "--epoch", "2")
    assert found["is_identical"]
    assert all(each["compared"] > 5 and not each["differences"] for each in found["epochs"])
    assert "epoch 2: identical" in project.laminar("verify").stdout
    assert project.laminar.error("verify", "--epoch", "9", exit_code=2)["kind"] == (
        "epoch_not_committed"
    )


def test_verify_names_what_is_not_deterministic(tmp_path: Path, spark: SparkSession) -> None:
    root = tmp_path / "project"
    assert Laminar()("init", str(root), "--name", "clicks").exit_code == 0
    project = Project(root)
    project.edit("pipeline.yml", "buckets: 4", "determinism: warn\nbuckets: 4")
    project.edit("models/purchases.sql", "amount, ts", "amount * rand() AS amount, ts")
    assert project.laminar("run").exit_code == 0
    result = project.laminar("verify", "--json")
    assert result.exit_code == 3
    (epoch,) = json.loads(result.stdout)["epochs"]
    assert epoch["views"] == ["purchases"]
    assert [(each["kind"], each["name"]) for each in epoch["differences"]] == [
        ("sink", "purchases")
    ]
    human = project.laminar("verify")
    assert human.exit_code == 3
    assert "Not deterministic: purchases" in human.stdout


def test_state_is_shown_and_compared(project: Project) -> None:
    first = project.laminar.json("state", "show", "clicks_per_minute", "--epoch", "1")
    last = project.laminar.json("state", "show", "clicks_per_minute")
    assert (first["epoch"], last["epoch"]) == (1, 2)
    assert first["keys"] == ["window_end", "page"]
    assert last["values"] == ["count(*)", "sum(amount)"]
    assert last["rows_in_all"] == len(last["rows"]) > 0
    short = project.laminar("state", "show", "clicks_per_minute", "--limit", "1").stdout
    assert f"{last['rows_in_all'] - 1} more" in short
    changes = project.laminar.json("state", "diff", "clicks_per_minute", "--from", "1")
    before = {(row["window_end"], row["page"]): row for row in first["rows"]}
    after = {(row["window_end"], row["page"]): row for row in last["rows"]}
    assert changes["changes"]["gone"] == len(before.keys() - after.keys())
    assert changes["changes"]["added"] == len(after.keys() - before.keys())
    same = project.laminar("state", "diff", "clicks_per_minute", "--from", "2", "--to", "2")
    assert "nothing changed" in same.stdout
    error = project.laminar.error("state", "show", "click_per_minute", exit_code=2)
    assert (error["kind"], error["hint"]) == (
        "unknown_operator",
        "did you mean `clicks_per_minute`?",
    )
    assert project.laminar.error("state", "show", "x", "--epoch", "7", exit_code=2)["kind"] == (
        "epoch_without_checkpoint"
    )


def test_letters_are_listed_shown_and_put_back_once(project: Project) -> None:
    found = project.laminar.json("dead-letters", "list")["dead_letters"]
    assert {each["kind"] for each in found} == {"bad", "late"}
    assert sum(each["records"] for each in found if each["kind"] == "bad") == 8
    shown = project.laminar.json("dead-letters", "show", "1", "--kind", "bad")["dead_letters"]
    (bad,) = shown
    assert bad["records"][0]["reason"] == "not a JSON object"
    assert bad["records"][0]["partition"] == "server-a.ndjson"
    late = project.laminar("dead-letters", "show", "1", "--kind", "late", "--limit", "1").stdout
    assert "more; --limit all" in late
    replayed = project.laminar.json("dead-letters", "replay", "1")["replayed"]
    assert replayed[0]["records"] == bad["records_in_all"]
    assert all((project.root / "input" / each).exists() for each in replayed[0]["places"])
    assert project.laminar.error("dead-letters", "replay", "1", exit_code=3)["kind"] == (
        "already_replayed"
    )
    again = project.laminar.json("run")["epochs"]
    assert [(each["epoch"], each["counts"]["read"]) for each in again] == [
        (3, bad["records_in_all"])
    ]
    error = project.laminar.error("dead-letters", "show", "1", "--source", "x", exit_code=2)
    assert error["kind"] == "no_dead_letters"
    assert project.laminar.error("dead-letters", "show", "99", exit_code=2)["kind"] == (
        "unknown_epoch"
    )


def test_letters_outlive_their_checkpoint(project: Project) -> None:
    assert project.laminar("checkpoints", "gc", "--retain", "1", "--grace", "0s").exit_code == 0
    epochs = {
        each["epoch"] for each in project.laminar.json("dead-letters", "list")["dead_letters"]
    }
    assert epochs == {1, 2}
    (bad,) = project.laminar.json("dead-letters", "show", "1", "--kind", "bad")["dead_letters"]
    assert bad["records"]
    for path in (project.store / "checkpoints").glob("*/dead_letters/*/*"):
        path.unlink()
    found = project.laminar.json("dead-letters", "list")["dead_letters"]
    assert {each["epoch"] for each in found} == {2}
    error = project.laminar.error("dead-letters", "show", "1", exit_code=2)
    assert "collected" in error["message"]


def test_a_view_that_its_tables_cannot_take_is_told_before_anything_is_published(
    project: Project,
) -> None:
    """By validate, with the sink's place; and by a run, which then publishes nothing."""
    project.edit("models/purchases.sql", "user_id, page", "page AS user_id, user_id AS page")
    found = project.laminar.json("validate", "--connect", exit_code=2)["pipelines"][0]
    (error,) = [each["error"] for each in found["connections"] if each["error"]]
    assert "sinks.sql:" in error["message"]
    assert "`user_id`" in error["message"]
    clicks = next((project.root / "input").glob("*.ndjson"))
    bought = [line for line in clicks.read_text().splitlines() if "checkout" in line]
    with clicks.open("a") as more:
        more.write(bought[-1] + "\n")
    refused = project.laminar.json("run", "--epochs", "1", exit_code=1)["error"]
    assert refused["kind"] == "gate_failed"
    assert "sink fit" in refused["message"]
    assert {each["ledger"] for each in project.laminar.json("status")["sinks"]} == {2}


def test_decimals_that_were_text_are_told_and_mended_by_what_is_told(project: Project) -> None:
    """By validate, and by a run, with SQL after which the run goes on."""
    path = project.root / "output" / "clicks.db"
    bought = "SELECT count(*), max(amount) FROM purchases WHERE amount > 50"
    with closing(sqlite3.connect(path)) as database:
        right = database.execute(bought).fetchone()
        assert 0 < right[0] < database.execute("SELECT count(*) FROM purchases").fetchone()[0]
        # As it was made before decimals were numbers.
        database.executescript(
            "ALTER TABLE purchases RENAME COLUMN amount TO number;"
            "ALTER TABLE purchases ADD COLUMN amount TEXT;"
            "UPDATE purchases SET amount = printf('%.2f', number);"
            "ALTER TABLE purchases DROP COLUMN number;"
        )
        assert database.execute(bought).fetchone() != right
    found = project.laminar.json("validate", "--connect", exit_code=2)["pipelines"][0]
    (error,) = [each["error"] for each in found["connections"] if each["error"]]
    clicks = next((project.root / "input").glob("*.ndjson"))
    lines = [line for line in clicks.read_text().splitlines() if "checkout" in line]
    with clicks.open("a") as more:
        more.write(lines[-1] + "\n")
    refused = project.laminar.json("run", "--epochs", "1", exit_code=1)["error"]
    assert refused["kind"] == "gate_failed"
    before, script = error["message"].split("BEGIN;")
    assert "table `purchases` keeps text in column `amount` (declared TEXT)" in before
    assert script in refused["message"]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(f"BEGIN;{script}")
        assert database.execute(bought).fetchone() == right
    assert [each["epoch"] for each in project.laminar.json("run")["epochs"]] == [3]
    assert {each["ledger"] for each in project.laminar.json("status")["sinks"]} == {3}


def test_validate_has_spark_look_at_the_queries(project: Project) -> None:
    found = project.laminar.json("validate", "--connect")["pipelines"][0]["connections"]
    (queries,) = (each for each in found if each["part"] == "queries")
    assert queries["found"] == "Spark takes every one"
    assert queries["error"] is None
    assert queries["warning"] is None
    asked = [each for each in found if each["part"].startswith("columns of sink ")]
    assert [each["found"] for each in asked] == ["every one has its place"] * len(asked)
    assert len(asked) == 3
    project.edit(VIEW, "SUM(amount)", "SUM(page)")
    project.edit("models/purchases.sql", "user_id, page", "upper(page, page) AS user_id, page")
    found = project.laminar.json("validate", "--connect", exit_code=2)["pipelines"][0]
    errors = [each["error"] for each in found["connections"] if each["error"]]
    texts = " ".join(error["message"] for error in errors)
    assert len(errors) == 2
    assert "clicks_per_minute.sql:" in texts
    assert "SUM(page) needs a number" in texts
    assert "purchases.sql:" in texts

"""A real Airflow, in an environment of its own and on SQLite, runs epochs: one is killed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import laminar_dagster as laminar
from infra.environments import python_with
from tests.integration.airflow import killed_once
from tests.unit.cli.conditions import Laminar

pytestmark = [pytest.mark.long_lane, pytest.mark.service("airflow"), pytest.mark.timeout(900)]

VERSION = "3.3.2"
ROOT = Path(__file__).parents[3]
DAG = Path(__file__).with_name("epochs_dag.py")


class Airflow:
    """An instance with one DAG."""

    def __init__(self, home: Path, shop: Path) -> None:
        self.python = python_with(f"airflow-{VERSION}", [f"apache-airflow=={VERSION}"])
        (home / "dags").mkdir(parents=True)
        shutil.copy(DAG, home / "dags")
        command = home / "laminar"
        command.write_text(
            "#!/bin/sh\n"
            f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m {killed_once.__name__} "$@"\n'
        )
        command.chmod(0o755)
        self.home = home
        self.environment = os.environ | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": str(ROOT),
            "SHOP": str(shop),
            "LAMINAR": str(command),
        }
        self("db", "migrate")

    def __call__(self, *args: str, exit_code: int = 0) -> str:
        done = subprocess.run(
            [self.python, "-m", "airflow", *args],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            return database.execute(query).fetchall()


def test_epochs_are_tasks_and_a_killed_one_is_tried_again(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    assert Laminar()("init", str(shop), "--name", "clicks").exit_code == 0
    file = shop / "dbt_like_configs" / "clicks" / "pipeline.yml"
    file.write_text(file.read_text().replace("max_records: 100000", "max_records: 400"))
    airflow = Airflow(tmp_path / "airflow", shop)
    for _ in range(3):
        airflow("dags", "test", "shop")
    tasks = airflow.rows("SELECT state, try_number FROM task_instance ORDER BY start_date")
    # The first was killed after its epoch was planned; the third found nothing to read.
    assert (shop / "killed").exists()
    assert tasks == [("success", 2), ("success", 1), ("skipped", 1)]
    events = [json.loads(extra) for (extra,) in airflow.rows("SELECT extra FROM asset_event")]
    assert [each["epoch"] for each in events] == [1, 2]
    assert sum(each["counts"]["read"] for each in events) == 608
    results = [
        json.loads(json.loads(value)) if value.startswith('"') else json.loads(value)
        for (value,) in airflow.rows("SELECT value FROM xcom ORDER BY timestamp")
    ]
    assert [each["epochs_done"] for each in results] == [1, 1]
    # As if nobody had been killed: the plan that Airflow's first try left is what was run.
    pipeline = laminar.open(shop).pipeline()
    assert [each.number for each in pipeline.epochs()] == [2, 1]
    with closing(sqlite3.connect(shop / "output" / "clicks.db")) as sink:
        published = sink.execute("SELECT page, clicks FROM clicks_per_minute").fetchall()
    staged = [
        (row["page"], row["clicks"])
        for epoch in (1, 2)
        for row in pipeline.read("clicks_per_minute", epoch).to_arrow().to_pylist()
    ]
    assert sorted(published) == sorted(staged)


def test_what_a_retry_cannot_heal_fails_at_once(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    assert Laminar()("init", str(shop), "--name", "clicks").exit_code == 0
    (shop / "killed").touch()
    file = shop / "dbt_like_configs" / "clicks" / "pipeline.yml"
    file.write_text(file.read_text() + "bukets: 4\n")
    airflow = Airflow(tmp_path / "airflow", shop)
    told = airflow("dags", "test", "shop", exit_code=1)
    assert airflow.rows("SELECT state, try_number FROM task_instance") == [("failed", 1)]
    assert "bukets" in told
    assert "`buckets`" in told

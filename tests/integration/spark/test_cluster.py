"""Epochs on a real cluster: a master, two workers, and executors that die in the middle of one."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from infra.load import Deadline
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.rerun import rerun
from tests.integration.cli.test_console_script import SCRIPT, environment
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, random_records
from tests.integration.spark.test_engine import answer_in
from tests.services.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.service("spark_cluster"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

CONFIG = """
epoch: {{max_records: 300}}
spark:
  spark.master: {master}
  spark.executor.memory: 512m
  spark.sql.shuffle.partitions: "2"
"""


def start_run(project: Project) -> subprocess.Popen[str]:
    """The whole backlog, as a user runs it."""
    return subprocess.Popen(
        [SCRIPT, "run", "clicks", "--json"],
        cwd=project.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(DAGSTER_HOME=str(project.root / "dagster")),
    )


def attempts_in(project: Project) -> set[Path]:
    return set((project.root / "state" / "checkpoints").glob("*/attempt.json"))


def wait_for_attempt(project: Project, run: subprocess.Popen[str], known: set[Path]) -> None:
    deadline = Deadline(120)
    while not attempts_in(project) - known:
        assert run.poll() is None, run.communicate()
        assert not deadline.is_over, "no epoch has begun to compute"
        time.sleep(0.02)


def test_epochs_outlive_the_workers_of_a_cluster(
    project: Project, build: Build, spark_cluster: SparkCluster
) -> None:
    """Each is killed in an epoch, with its executors; the bytes are those of a single process."""
    (project.root / "dagster").mkdir()
    project.write(config=CONFIG.format(master=spark_cluster.url))
    chance = random.Random(7)
    project.append("a.ndjson", random_records(chance, 700))
    project.append("b.ndjson", random_records(chance, 600))
    run = start_run(project)
    wait_for_attempt(project, run, set())
    first = attempts_in(project)
    wait_for_attempt(project, run, first)
    spark_cluster.kill(0)
    told, errors = run.communicate(timeout=240)
    if run.returncode:
        # Spark gave up before the executors of the other worker could take over.
        assert json.loads(told)["error"]["kind"], errors
        run = start_run(project)
        told, errors = run.communicate(timeout=240)
    assert run.returncode == 0, errors
    assert all(spark_cluster.executors_of(number) for number in (0, 1)), "both have worked"
    assert answer_in(project) == project.expected()
    large = [(str(p), float(str(t))) for p, t in project.query("SELECT page, twice FROM large")]
    assert sorted(large) == project.expected_large()
    lake = DeltaTable(project.root / "lake").to_pyarrow_table()
    assert lake.num_rows == len(project.expected()) > 5
    # What a cluster has written, one process writes to the byte.
    alone = build()
    for epoch in (1, 2, 3):
        assert rerun(alone, EpochNumber(epoch)).is_identical

"""What an epoch of few records makes Spark do: processes, jobs, stages and tasks."""

from __future__ import annotations

import os
import random

from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.spark.session_settings import WORKER_DAEMON
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, random_records
from tests.services.process_tree import command_line, descendants


def run_epoch(project: Project, build: Build) -> None:
    """An epoch of two partitions, a window with state and a view that Spark filters."""
    chance = random.Random(7)
    for name in ("a.ndjson", "b.ndjson"):
        project.append(name, random_records(chance, 50))
    EpochRunner(build()).run()


def modules_of_pythons() -> set[str]:
    """What the Python processes below this one run."""
    lines = [command_line(pid).split("\n") for pid in descendants(os.getpid())]
    return {line[line.index("-m") + 1] for line in lines if "-m" in line}


def test_spark_starts_no_python_but_its_workers(project: Project, build: Build) -> None:
    run_epoch(project, build)
    assert {each for each in modules_of_pythons() if "spark" in each} == {WORKER_DAEMON}

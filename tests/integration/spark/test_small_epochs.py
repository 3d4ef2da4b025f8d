"""What an epoch of few records makes Spark do: processes, jobs, stages and tasks."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochLoop
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey
from laminar_dagster.spark.session_settings import WORKER_DAEMON
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, random_records
from tests.services.process_tree import command_line, descendants

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_epochs(project: Project, build: Build) -> Pipeline:
    """An epoch of two partitions, a window with state and a view that Spark filters."""
    chance = random.Random(7)
    for name in ("a.ndjson", "b.ndjson"):
        project.append(name, random_records(chance, 50))
    pipeline = build()
    EpochLoop(pipeline, EpochRunner(pipeline)).run_until_caught_up()
    return pipeline


def jobs_of(spark: SparkSession) -> set[int]:
    """The jobs that Spark has run, and still knows of."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup())


def modules_of_pythons() -> set[str]:
    """What the Python processes below this one run."""
    lines = [command_line(pid).split("\n") for pid in descendants(os.getpid())]
    return {line[line.index("-m") + 1] for line in lines if "-m" in line}


def test_spark_starts_no_python_but_its_workers(project: Project, build: Build) -> None:
    run_epochs(project, build)
    assert {each for each in modules_of_pythons() if "spark" in each} == {WORKER_DAEMON}


def test_an_epoch_is_one_job_with_a_task_for_each_partition(
    project: Project, build: Build, spark: SparkSession
) -> None:
    before = jobs_of(spark)
    run_epochs(project, build)
    (number,) = jobs_of(spark) - before
    tracker = spark.sparkContext.statusTracker()
    job = tracker.getJobInfo(number)
    assert job
    stages = [tracker.getStageInfo(each) for each in sorted(job.stageIds)]
    shuffled = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    # Two files are read and pre-aggregated; then the state, and the view of both files' records.
    assert [each.numTasks for each in stages if each] == [2, shuffled + 2]


def test_nothing_to_read_is_no_job(project: Project, build: Build, spark: SparkSession) -> None:
    pipeline = run_epochs(project, build)
    before = jobs_of(spark)
    assert before
    newest = survey(pipeline.checkpoints).newest_epoch
    EpochLoop(pipeline, EpochRunner(pipeline)).run_until_caught_up()
    assert jobs_of(spark) == before
    assert survey(pipeline.checkpoints).newest_epoch == newest

"""Running the pipeline in the test's own process, and meddling between its steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from laminar_dagster.config.project import load_project
from laminar_dagster.core.points import Point
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.crash import strike_at
from tests.integration.proof.kill_points import STEPS
from tests.integration.proof.worker import is_caught_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_here(root: Path, spark: SparkSession) -> Pipeline:
    """The pipeline as it stands on disk, on a session that is there."""
    (model,) = load_project(root, {}, known_connectors())
    return assemble(model, root, lambda: spark)


def run_to_the_end(root: Path, spark: SparkSession) -> Pipeline:
    """Epochs until all input is read, by a pipeline that is opened anew."""
    pipeline = open_here(root, spark)
    while not is_caught_up(pipeline, root):
        EpochRunner(pipeline).run()
    return pipeline


def before_step(step: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Have something happen before a step of the protocol, the first time inside the block."""
    return strike_at(act, Point.STEP_BEGINS, STEPS[step].__name__)

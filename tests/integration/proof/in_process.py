"""Running the pipeline in the test's own process, and meddling between its steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laminar_dagster.config.project import load_project
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
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


def before_step(patch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Have something happen before a step of the protocol, the first time."""
    original: Callable[..., Any] = getattr(steps, step)

    def meddled(*arguments: Any) -> Any:
        patch.setattr(steps, step, original)
        act()
        return original(*arguments)

    patch.setattr(steps, step, meddled)

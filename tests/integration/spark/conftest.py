"""A project on disk, and the pipeline and branches that are built of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_dagster.config.project import load_project
from laminar_dagster.core.ids import BranchName
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.branches.assembly import assemble_branch
from laminar_dagster.runtime.branches.published import branch_sinks
from laminar_dagster.runtime.pipeline import Pipeline
from tests.integration.spark.branches import Branch, Branched
from tests.integration.spark.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[..., Pipeline]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write()
    return project


@pytest.fixture
def build(project: Project, spark: SparkSession) -> Build:
    """Loads the project as it is now; the arguments replace parts of the pipeline."""

    def build(**changes: object) -> Pipeline:
        (model,) = load_project(project.root, {}, known_connectors())
        pipeline = assemble(model, project.root, lambda: spark)
        return dataclasses.replace(pipeline, **changes)  # type: ignore[arg-type]

    return build


@pytest.fixture
def branch(project: Project, build: Build, spark: SparkSession) -> Branch:
    """Makes a branch of the project as it is now, of which nothing is stored yet."""

    def branch(name: str) -> Branched:
        (model,) = load_project(project.root, {}, known_connectors())
        main, wanted = build().checkpoints, BranchName(name)
        pipeline = assemble_branch(model, project.root, main.objects, wanted, lambda: spark)
        return Branched(main, pipeline, wanted, branch_sinks(model))

    return branch

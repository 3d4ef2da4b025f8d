"""Loads pipelines from their folders, and reports every mistake in them.

Commands, Dagster's definitions, the component and user code all load pipelines through it, so that
they refuse the same mistakes. No service is contacted, and Spark does not start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.runtime.assembly import Adapters, check_models, known_connectors


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline that was checked and has no mistakes.

    Attributes:
        adapters: What it reads from and writes to; nothing is opened yet.
    """

    model: PipelineModel
    adapters: Adapters


def load_pipelines(
    folders: Iterable[Path],
    project: Path,
    environment: Mapping[str, str] = os.environ,
    *,
    builds_contracts: bool = True,
) -> tuple[LoadedPipeline, ...]:
    """Load pipelines of a project. Mistakes in its other pipelines are no obstacle.

    Args:
        folders: The folders of the pipelines.
        project: Where relative paths begin.
        environment: Where ``${NAME}`` is taken from.
        builds_contracts: See ``config.project.load_pipeline``.

    Raises:
        InvalidPipeline: Lists every mistake of all of these pipelines.
    """
    report = Report()
    models: list[PipelineModel] = []
    for folder in folders:
        try:
            models.append(
                load_pipeline(
                    folder, environment, known_connectors(), builds_contracts=builds_contracts
                )
            )
        except InvalidConfig as error:
            report.add_error(error)
    adapters: tuple[Adapters, ...] = ()
    try:
        adapters = check_models(models, project)
    except InvalidConfig as error:
        report.add_error(error)
    report.raise_if_any()
    return tuple(map(LoadedPipeline, models, adapters))

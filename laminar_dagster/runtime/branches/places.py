"""Where the tables of a branch are: below the project, for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from laminar_dagster.core.ids import BranchName, PipelineName, SinkId

FOLDER: Final = "branches"


def tables_folder(project: Path, pipeline: PipelineName, name: BranchName) -> Path:
    """The folder of a branch's tables; nothing else is in it."""
    return project / FOLDER / pipeline / name


def table_folder(project: Path, pipeline: PipelineName, name: BranchName, sink: SinkId) -> Path:
    """The Delta table that stands for a sink in a branch."""
    return tables_folder(project, pipeline, name) / sink

"""Which pipeline a command is about, and what it takes to work with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from laminar_dagster.cli.options import TEXT
from laminar_dagster.cli.output import output_of
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import (
    PipelineConfig,
    find_pipeline,
    find_pipelines,
    read_pipeline,
)
from laminar_dagster.core.errors import NoEpochs, NoPipelines
from laminar_dagster.runtime.spark_start import start_spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from laminar_dagster.runtime.checkpoints import CheckpointStore
    from laminar_dagster.runtime.pipeline import Pipeline

CallableT = TypeVar("CallableT", bound="Callable[..., Any]")


def pipeline_argument(command: CallableT) -> CallableT:
    """``[PIPELINE]``: a name; the only pipeline of the project need not be named."""
    return click.argument(
        "pipeline", type=TEXT, metavar="[PIPELINE]", required=False, shell_complete=_complete
    )(command)


def _complete(ctx: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """The names that a shell offers. The project is not known yet as commands know it."""
    project = ctx.find_root().params.get("project") or Path()
    return [each.name for each in find_pipelines(project) if each.name.startswith(begun)]


def project_of(ctx: click.Context) -> Path:
    """The project's folder, where relative paths begin."""
    project: Path = ctx.meta.get("laminar.project", Path())
    return project


def find_folders(ctx: click.Context) -> list[Path]:
    """The folders of every pipeline, by name.

    Raises:
        NoPipelines: There is none.
    """
    project = project_of(ctx)
    folders = find_pipelines(project)
    if not folders:
        raise NoPipelines(str(project.absolute()))
    return [*folders]


def find_folder(ctx: click.Context, name: str | None) -> Path:
    """The folder of the pipeline that is meant.

    Raises:
        UnknownPipeline, SeveralPipelines, NoPipelines: As their names say.
    """
    return find_pipeline(project_of(ctx), name)


def find_config(ctx: click.Context, name: str | None) -> PipelineConfig:
    """The ``pipeline.yml`` of a pipeline, for commands that need no more of it.

    Raises:
        UsageError: There is no such pipeline.
        InvalidConfig: Lists every mistake of the file.
    """
    return read_pipeline(find_folder(ctx, name))


def find_model(
    ctx: click.Context, name: str | None, *, builds_contracts: bool = False
) -> PipelineModel:
    """The pipeline of that name, or the only one. A mistake in another one is no obstacle.

    Args:
        ctx: Knows the project's folder.
        name: As given on the command line.
        builds_contracts: Whether contracts are going to be used, and have to be right.

    Raises:
        UsageError: There is no such pipeline, or several and no name.
        InvalidPipeline: Lists every mistake of it.
    """
    # Imported here: with the connectors come their clients.
    from laminar_dagster.runtime.loading import load_pipelines

    (loaded,) = load_pipelines(
        [find_folder(ctx, name)], project_of(ctx), builds_contracts=builds_contracts
    )
    model = loaded.model
    for warning in model.warnings:
        output_of(ctx).warn(warning)
    return model


def open_history(ctx: click.Context, config: PipelineConfig) -> CheckpointStore:
    """The store of a pipeline that has run.

    Raises:
        NoEpochs: It has no store yet.
    """
    from laminar_dagster.runtime.assembly import existing_checkpoints

    checkpoints = existing_checkpoints(config, project_of(ctx))
    if checkpoints is None:
        raise NoEpochs(config.name)
    return checkpoints


def open_history_of(ctx: click.Context, pipeline: str | None) -> CheckpointStore:
    """The same by the pipeline's name. A mistake in its SQL is no obstacle.

    Raises:
        NoEpochs: It has no store yet.
        UsageError: There is no such pipeline.
    """
    return open_history(ctx, find_config(ctx, pipeline))


def open_pipeline(
    ctx: click.Context,
    model: PipelineModel,
    *,
    when_started: Callable[[float], None] = lambda _seconds: None,
    is_brief: Callable[[], bool] = lambda: False,
) -> Pipeline:
    """A pipeline that can run. Spark starts with the first epoch that is computed.

    Args:
        ctx: Knows the project's folder.
        model: What its author wrote.
        when_started: Called when Spark has started, with the seconds that it took.
        is_brief: Asked before Spark starts whether it will compute little.

    Raises:
        InvalidPipeline: Lists every option that is wrong.
        ConditionsIgnored: The store cannot hold checkpoints.
        StoreUnavailable: The store is away.
    """
    from laminar_dagster.runtime.assembly import assemble

    return assemble(model, project_of(ctx), spark_session(model, when_started, is_brief))


def spark_session(
    model: PipelineModel,
    when_started: Callable[[float], None] = lambda _seconds: None,
    is_brief: Callable[[], bool] = lambda: False,
) -> Callable[[], Any]:
    """Gives one session of Spark, which starts when it is asked for first.

    Args:
        model: Has the settings.
        when_started: Called when Spark has started, with the seconds that it took.
        is_brief: Asked before Spark starts whether it will compute little.
    """
    sessions: list[Any] = []

    def session() -> Any:
        if not sessions:
            begun = time.monotonic()
            started = start_spark(
                model.config.spark,
                written=model.written_spark,
                withheld=model.secret_variables,
                is_brief=is_brief(),
            )
            sessions.append(started)
            when_started(time.monotonic() - begun)
        return sessions[0]

    return session

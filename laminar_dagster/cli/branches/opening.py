"""Which branch a command is about, and what it takes to work with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from laminar_dagster.cli.options import TEXT
from laminar_dagster.cli.pipelines import open_history, project_of, spark_session
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.branch import BranchSink
from laminar_dagster.core.ids import BranchName
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline

if TYPE_CHECKING:
    from laminar_dagster.runtime.branches.replaying import Replay

CallableT = TypeVar("CallableT", bound=Callable[..., Any])
Named = tuple[str | None, BranchName]


def branch_argument(command: CallableT) -> CallableT:
    """``[PIPELINE] NAME``: the only pipeline of the project need not be named."""
    return click.argument(
        "named", type=TEXT, metavar="[PIPELINE] NAME", nargs=-1, required=True, callback=_named
    )(command)


def _named(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Named:
    if len(given) > 2:
        problem = f"one pipeline and one branch, not {len(given)} names"
        raise click.BadParameter(problem, ctx, parameter)
    return (given[0] if len(given) == 2 else None), BranchName(given[-1])


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """A branch that can run, whether it has been made or not.

    Attributes:
        main: The checkpoints of its pipeline.
        pipeline: What computes the branch.
        sinks: Those of the project as it is now.
    """

    model: PipelineModel
    name: BranchName
    main: CheckpointStore
    pipeline: Pipeline
    sinks: tuple[BranchSink, ...]

    def replay(self, on_step: Callable[[int, str], None] | None = None) -> Replay:
        """The branch as it was made, by this very version of the pipeline.

        Raises:
            UnknownBranch: It was not made.
            BranchMismatch: By another version, or it is being dropped.
        """
        from laminar_dagster.runtime.branches.records import read_branch
        from laminar_dagster.runtime.branches.replaying import Replay

        record = read_branch(self.main.objects, self.name)
        replay = Replay(self.main, self.pipeline, record, on_step)
        replay.require_version(self.sinks)
        return replay


def open_branch(
    ctx: click.Context,
    model: PipelineModel,
    name: BranchName,
    *,
    when_started: Callable[[float], None] = lambda _seconds: None,
) -> OpenBranch:
    """A branch of a pipeline. Spark starts with the first epoch that is computed.

    Args:
        ctx: Knows the project's folder.
        model: The project as it is now.
        name: Of the branch.
        when_started: Called when Spark has started, with the seconds that it took.

    Raises:
        NoEpochs: The pipeline has not run yet.
        InvalidPipeline: Lists every option that is wrong.
    """
    from laminar_dagster.runtime.branches.assembly import assemble_branch
    from laminar_dagster.runtime.branches.published import branch_sinks

    project = project_of(ctx).absolute()
    main = open_history(ctx, model.config)
    session = spark_session(model, when_started)
    pipeline = assemble_branch(model, project, main.objects, name, session)
    return OpenBranch(model, name, main, pipeline, branch_sinks(model))

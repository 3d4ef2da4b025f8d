"""``laminar rescale``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.numbers import NumberType
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import (
    find_model,
    open_pipeline,
    pipeline_argument,
    project_of,
)
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.run import step_words
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.config.definition import define
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import MAX_BUCKETS, config_file
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.upkeep import describe_upkeep
from laminar_dagster.runtime.assembly import existing_checkpoints
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.rescale import (
    RescaleNeeded,
    StateSize,
    rescale_needed,
    state_sizes,
)
from laminar_dagster.runtime.upkeep import plan_upkeep


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What was found, and what was done about it.

    Attributes:
        needed: None when there was nothing to do.
        done: The rescaled state; None when nothing was done.
    """

    model: PipelineModel
    needed: RescaleNeeded | None
    done: CheckpointManifest | None = None
    seconds: float = 0.0

    def sizes(self) -> Iterator[tuple[str, StateSize, StateSize | None]]:
        """Of each operator's state: before, and after."""
        if self.needed is None:
            return
        before = state_sizes(self.needed.parent)
        after = state_sizes(self.done) if self.done else None
        for operator in sorted({*before, *(after or ())}):
            now = after.get(operator, StateSize()) if after is not None else None
            yield str(operator), before.get(operator, StateSize()), now


@click.command("rescale")
@pipeline_argument
@click.option(
    "--buckets",
    type=NumberType("a number of buckets", 1, MAX_BUCKETS),
    metavar="N",
    help="The number that pipeline.yml is expected to say.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, buckets: int | None, dry_run: bool) -> None:
    """Spread the state over as many buckets as pipeline.yml says.

    It is an epoch of its own, which reads no record; what windows hold stays as it is. Stop
    whatever runs epochs of the pipeline first. A rescale that was interrupted is finished by
    running the command again, or by the next `laminar run`.
    """
    model = find_model(ctx, pipeline, builds_contracts=not dry_run)
    _require_same(ctx, model, buckets)
    checkpoints = existing_checkpoints(model.config, project_of(ctx))
    needed = rescale_needed(define(model), checkpoints) if checkpoints else None
    outcome = _Outcome(model, needed)
    if needed and not dry_run:
        outcome = _rescale(ctx, model, needed)
    output_of(ctx).result(lambda: _document(outcome), lambda: _blocks(outcome))


def _require_same(ctx: click.Context, model: PipelineModel, buckets: int | None) -> None:
    """The file is what every process goes by; the option only makes sure of it."""
    written = model.config.buckets
    if buckets is not None and buckets != written:
        place = str(config_file(project_of(ctx), model.config.name))
        problem = f"it says {wording.count(written, 'bucket')}, and not {buckets}"
        raise InvalidConfig(place, problem, f"write `buckets: {buckets}` there, and run this again")


def _rescale(ctx: click.Context, model: PipelineModel, needed: RescaleNeeded) -> _Outcome:
    with live_line() as show:
        what = describe_upkeep(needed.upkeep)
        show(what)

        def tell(epoch: EpochNumber, step: str) -> None:
            show(f"{what}, epoch {epoch}: {step_words(step)}")

        starting: list[float] = []
        opened = open_pipeline(ctx, model, when_started=starting.append)
        epoch = plan_upkeep(opened, needed.upkeep)
        report = EpochRunner(opened, tell).run(epoch)
    # The start of Spark is none of its work.
    seconds = max(0.0, sum(step.seconds for step in report.steps) - sum(starting))
    return _Outcome(model, needed, opened.checkpoints.winner(epoch).manifest, seconds)


def _document(outcome: _Outcome) -> dict[str, Any]:
    needed, buckets = outcome.needed, outcome.model.config.buckets
    return {
        "pipeline": outcome.model.config.name,
        "is_needed": needed is not None,
        "is_done": outcome.done is not None,
        "buckets_before": needed.upkeep.buckets_before if needed else buckets,
        "buckets_after": buckets,
        "epoch": outcome.done.epoch if outcome.done else None,
        "checkpoint_id": outcome.done.checkpoint_id if outcome.done else None,
        "seconds": round(outcome.seconds, 6),
        "operators": [
            {
                "operator": operator,
                "files_before": before.files,
                "bytes_before": before.size_bytes,
                "files_after": after.files if after else None,
                "bytes_after": after.size_bytes if after else None,
            }
            for operator, before, after in outcome.sizes()
        ],
    }


def _blocks(outcome: _Outcome) -> Iterator[Block]:
    name, needed = outcome.model.config.name, outcome.needed
    buckets = wording.count(outcome.model.config.buckets, "bucket")
    if needed is None:
        yield Line(f"Pipeline {name}: nothing to do, its state fits {buckets}.")
        return
    before = needed.upkeep.buckets_before
    names = ("files", "bytes", "files now", "bytes now") if outcome.done else ("files", "bytes")
    rows = [
        (operator, *_cells(was), *(_cells(now) if now else ()))
        for operator, was, now in outcome.sizes()
    ]
    yield Table((Column("operator"), *(Column(each, right=True) for each in names)), rows)
    yield Line()
    if outcome.done is None:
        begun = f", which epoch {needed.begun} has begun" if needed.begun else ""
        yield Line(f"Pipeline {name}: would go from {before} to {buckets}{begun}. Nothing is done.")
        return
    epoch = outcome.done.epoch
    yield Line(
        f"Pipeline {name}: from {before} to {buckets} in epoch {epoch}, {outcome.seconds:.1f} s. "
        f"`laminar epochs show {epoch} {name}` shows every file."
    )


def _cells(size: StateSize) -> tuple[str, str]:
    return f"{size.files:,}", wording.size(size.size_bytes)

"""``laminar fork``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.branches.opening import OpenBranch, open_branch
from laminar_dagster.cli.branches.progress import ReplayProgress
from laminar_dagster.cli.numbers import EPOCH_OR_BEGINNING
from laminar_dagster.cli.options import TEXT, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, pipeline_argument, project_of
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.core.ids import BranchName, EpochNumber
from laminar_dagster.runtime.branches.forking import Fork, fork
from laminar_dagster.runtime.branches.places import tables_folder
from laminar_dagster.runtime.branches.replaying import Replay


@click.command("fork")
@pipeline_argument
@click.option(
    "--from-epoch",
    type=EPOCH_OR_BEGINNING,
    required=True,
    metavar="N",
    help="The last epoch that is right as it is; 0 to begin at the beginning.",
)
@click.option(
    "--as", "name", type=TEXT, required=True, metavar="NAME", help="What the branch is called."
)
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, from_epoch: int, name: str) -> None:
    """Replay the epochs after N with the project as it is now, in a branch.

    The plans that are stored are carried out once more: the same records, the same clock. State
    goes to a place of its own, output to Delta tables below branches/. The pipeline is not touched
    and may go on. The same command again finishes what was interrupted.
    """
    output, branch_name = output_of(ctx), BranchName(name)
    model = find_model(ctx, pipeline, builds_contracts=True)
    with live_line() as show:
        done = ReplayProgress(show)
        opened = open_branch(ctx, model, branch_name, when_started=done.started)
        made = _make(opened, EpochNumber(from_epoch), show)
        for change in made.changes:
            if change.verdict == "new" and made.record.start:
                output.warn(f"operator {change.operator_id}: {'; '.join(change.reasons)}")
        replay = Replay(opened.main, opened.pipeline, made.record, done.step)
        done.follow(replay.run())
    tables = str(tables_folder(project_of(ctx), model.config.name, branch_name))
    output.result(lambda: _document(made, done, tables), lambda: _blocks(made, done, tables))


def _make(opened: OpenBranch, from_epoch: EpochNumber, show: Callable[[str], None]) -> Fork:
    copied = 0

    def progress(more: int) -> None:
        nonlocal copied
        copied += more
        show(f"copying the checkpoint: {wording.size(copied)}")

    pipeline, sinks = opened.model.config.name, opened.sinks
    return fork(opened.main, opened.pipeline, opened.name, pipeline, from_epoch, sinks, progress)


def _document(made: Fork, done: ReplayProgress, tables: str) -> dict[str, Any]:
    record = made.record
    return {
        "pipeline": record.pipeline,
        "branch": record.name,
        "from_epoch": record.from_epoch,
        "fingerprint": record.fingerprint,
        "tables": tables,
        "operators": [
            {"operator": each.operator_id, "verdict": each.verdict, "reasons": list(each.reasons)}
            for each in made.changes
        ],
        "epochs": done.documents(),
    }


def _blocks(made: Fork, done: ReplayProgress, tables: str) -> Iterator[Block]:
    record = made.record
    yield from done.blocks()
    both = f"{record.pipeline} {record.name}"
    yield Line(f"Branch {record.name} of {record.pipeline}, from epoch {record.from_epoch}.")
    yield Line(f"Its tables are below {tables}; `laminar branch diff {both}` compares.")
    yield Line(f"`laminar promote {both}` puts it in the pipeline's place.")

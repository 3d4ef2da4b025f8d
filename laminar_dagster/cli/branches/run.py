"""``laminar branch run``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.branches.opening import Named, branch_argument, open_branch
from laminar_dagster.cli.branches.progress import ReplayProgress
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.core.branch import BranchRecord


@click.command("run")
@branch_argument
@json_option
@click.pass_context
def command(ctx: click.Context, named: Named) -> None:
    """Replay in a branch what its pipeline has committed since, and what was interrupted."""
    pipeline, name = named
    model = find_model(ctx, pipeline, builds_contracts=True)
    with live_line() as show:
        done = ReplayProgress(show)
        opened = open_branch(ctx, model, name, when_started=done.started)
        replay = opened.replay(done.step)
        done.follow(replay.run())
    record = replay.record
    output_of(ctx).result(
        lambda: {
            "pipeline": record.pipeline,
            "branch": record.name,
            "epochs": done.documents(),
        },
        lambda: _blocks(record, done),
    )


def _blocks(record: BranchRecord, done: ReplayProgress) -> Iterator[Block]:
    yield from done.blocks()
    replayed = wording.count(len(done.epochs), "epoch")
    yield Line(f"Branch {record.name} of {record.pipeline}: {replayed} replayed; none is left.")

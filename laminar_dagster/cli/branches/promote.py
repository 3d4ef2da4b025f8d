"""``laminar promote``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.branches.opening import Named, branch_argument, open_branch
from laminar_dagster.cli.branches.progress import ReplayProgress
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, project_of
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.runtime.assembly import assemble
from laminar_dagster.runtime.branches.promoting import Promoted, Promoter


@click.command("promote")
@branch_argument
@json_option
@click.pass_context
def command(ctx: click.Context, named: Named) -> None:
    """Put a branch in its pipeline's place, and correct the sinks, in one epoch.

    What the pipeline has committed since is replayed first. A sink that cannot be corrected
    refuses all of it, before anything changes. Afterwards, processes that have the old version
    loaded are refused. The same command again finishes what was interrupted.
    """
    pipeline, name = named
    model = find_model(ctx, pipeline, builds_contracts=True)
    with live_line() as show:
        done = ReplayProgress(show)
        opened = open_branch(ctx, model, name, when_started=done.started)
        replay = opened.replay(done.step)
        # A promotion computes nothing, so it needs no Spark.
        main = assemble(model, project_of(ctx), None)
        promoted = Promoter(main, replay, done.finished, done.step).promote()
    output_of(ctx).result(
        lambda: _document(replay.record, promoted, done),
        lambda: _blocks(replay.record, promoted, done),
    )


def _rows(promoted: Promoted) -> dict[str, int]:
    return {
        str(sink.sink_id): sum(file.rows for file in sink.files) for sink in promoted.manifest.sinks
    }


def _document(record: BranchRecord, promoted: Promoted, done: ReplayProgress) -> dict[str, Any]:
    return {
        "pipeline": record.pipeline,
        "branch": record.name,
        "epoch": promoted.epoch,
        "checkpoint_id": promoted.manifest.checkpoint_id,
        "was_promoted_before": promoted.report is None,
        "corrected": [{"sink": name, "rows": rows} for name, rows in _rows(promoted).items()],
        "epochs": done.documents(),
    }


def _blocks(record: BranchRecord, promoted: Promoted, done: ReplayProgress) -> Iterator[Block]:
    yield from done.blocks()
    rows = [(name, f"{rows:,}") for name, rows in _rows(promoted).items()]
    yield Table((Column("sink"), Column("rows corrected", right=True)), rows)
    yield Line()
    when = "was promoted before" if promoted.report is None else "is promoted"
    yield Line(f"Branch {record.name} of {record.pipeline} {when}, in epoch {promoted.epoch}.")
    yield Line(
        "Load the project anew wherever the pipeline runs: the version before is refused. "
        f"`laminar branch drop {record.pipeline} {record.name}` removes the branch."
    )
    if not sum(_rows(promoted).values()):
        yield Line(f"{wording.count(0, 'row')} differed.")

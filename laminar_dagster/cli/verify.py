"""``laminar verify``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, open_history, open_pipeline, pipeline_argument
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import NoEpochs, NotReproduced
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.rerun import Difference, Rerun, rerun
from laminar_dagster.runtime.survey import newest_manifest, survey

_SHOWN: Final = 20


@click.command("verify")
@pipeline_argument
@click.option(
    "--epoch",
    "epochs",
    multiple=True,
    type=EPOCH,
    metavar="N",
    help="Which epoch; may be given several times.  [default: the newest]",
)
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, epochs: tuple[int, ...]) -> int:
    """Run a committed epoch again from its plan, and compare every hash with its manifest.

    Nothing is published, and nothing stays. Exits with 3 when something came out otherwise. (To
    check that files are undamaged, without running anything: `laminar checkpoints verify`.)
    """
    model = find_model(ctx, pipeline, builds_contracts=True)
    checkpoints = open_history(ctx, model.config)
    newest = newest_manifest(checkpoints, survey(checkpoints))
    if newest is None:
        raise NoEpochs(model.config.name)
    wanted = [EpochNumber(each) for each in epochs] or [newest.epoch]
    found = []
    with live_line() as show:
        opened = open_pipeline(ctx, model, is_brief=lambda: True)
        for place, epoch in enumerate(wanted, 1):
            show(f"running epoch {epoch} again ({place} of {len(wanted)})")
            found.append(rerun(opened, epoch))
    output_of(ctx).result(lambda: _document(found, model), lambda: _blocks(found, model))
    is_identical = all(each.is_identical for each in found)
    return 0 if is_identical else NotReproduced.exit_code


def views_that_differ(found: Rerun, model: PipelineModel) -> list[str]:
    """The views whose output or state came out otherwise, the first cause first."""
    named = {each.name.partition(":")[0].partition(".")[0] for each in found.differences}
    fed = {str(sink.sink_id): str(sink.view) for sink in model.sinks}
    culprits = {fed.get(name, name) for name in named}
    return [str(view.name) for view in model.views if str(view.name) in culprits]


def _document(found: list[Rerun], model: PipelineModel) -> dict[str, Any]:
    return {
        "pipeline": model.config.name,
        "is_identical": all(each.is_identical for each in found),
        "epochs": [
            {
                "epoch": each.epoch,
                "checkpoint_id": each.manifest.checkpoint_id,
                "is_identical": each.is_identical,
                "compared": each.compared,
                "absent_sinks": list(each.absent),
                "views": views_that_differ(each, model),
                "differences": [
                    {
                        "kind": one.kind,
                        "name": one.name,
                        "committed": one.committed or None,
                        "again": one.again or None,
                    }
                    for one in each.differences
                ],
            }
            for each in found
        ],
    }


def _blocks(found: list[Rerun], model: PipelineModel) -> Iterator[Block]:
    for each in found:
        if each.absent:
            names = ", ".join(each.absent)
            yield Line(
                f"epoch {each.epoch}: not compared is {names}, which the pipeline has no more"
            )
        if each.is_identical:
            count = wording.count(each.compared, "value")
            yield Line(f"epoch {each.epoch}: identical, {count} compared")
            continue
        columns = (
            Column("kind"),
            Column("name", folds=20),
            Column("committed", folds=12),
            Column("again", folds=12),
        )
        rows = [_cells(one) for one in each.differences[:_SHOWN]]
        share = f"{len(each.differences):,} of {each.compared:,}"
        yield Table(columns, rows, f"Epoch {each.epoch}: {share} came out otherwise")
        if len(each.differences) > _SHOWN:
            yield Line(f"{len(each.differences) - _SHOWN:,} more; --json shows every one.")
        views = views_that_differ(each, model)
        if views:
            yield Line(f"Not deterministic: {', '.join(views)}. Look at the first one.")


def _cells(difference: Difference) -> tuple[str, ...]:
    if difference.kind in ("counts", "source"):
        return difference.kind, difference.name, difference.committed, difference.again
    short = (wording.short_hash(each) for each in (difference.committed, difference.again))
    return (difference.kind, difference.name, *short)

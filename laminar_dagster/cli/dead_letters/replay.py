"""``laminar dead-letters replay``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import TEXT, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, open_history, pipeline_argument, project_of
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.runtime.assembly import build_adapters
from laminar_dagster.runtime.dead_letters import Replayed, letters_of_epoch, replay_letters


@click.command("replay")
@click.argument("epoch", metavar="N", type=EPOCH)
@pipeline_argument
@click.option("--source", type=TEXT, metavar="NAME", help="Of one source only.")
@json_option
@click.pass_context
def command(ctx: click.Context, epoch: int, pipeline: str | None, source: str | None) -> None:
    """Put the bad records of epoch N back into their source, after its columns were mended.

    The next epoch reads them as if they had just come: one whose window is closed is late. Each
    epoch's records are put back once; what fails again is in the letters of the epoch that read it.
    """
    model = find_model(ctx, pipeline)
    checkpoints = open_history(ctx, model.config)
    letters = letters_of_epoch(checkpoints, epoch, source, "bad")
    adapters = build_adapters(model, project_of(ctx))
    done = [replay_letters(checkpoints, adapters.sources, each) for each in letters]
    output_of(ctx).result(
        lambda: {
            "epoch": epoch,
            "replayed": [
                {
                    "source": each.source_id,
                    "records": each.records,
                    "cut_off": each.cut_off,
                    "places": list(each.places),
                }
                for each in done
            ],
        },
        lambda: _blocks(done, str(model.config.name)),
    )


def _blocks(done: list[Replayed], name: str) -> Iterator[Block]:
    for each in done:
        yield Line(f"{each.source_id}: {wording.count(each.records, 'record')} put back")
        for place in each.places:
            yield Line(f"  {place}")
        if each.cut_off:
            count = wording.count(each.cut_off, "record")
            yield Line(f"  {count} too long to be kept whole, and left where they are")
    yield Line(f"`laminar run {name}` reads them.")

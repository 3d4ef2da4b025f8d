"""``laminar dead-letters list``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import open_history_of, pipeline_argument
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.runtime.dead_letters import Letters, all_letters


@click.command("list")
@pipeline_argument
@limit_option(50, "lines")
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, limit: int | None) -> None:
    """List the records that were set aside, by epoch, source and kind; newest first."""
    output = output_of(ctx)
    checkpoints = open_history_of(ctx, pipeline)
    found = [*islice(all_letters(checkpoints, lambda error: output.warn(str(error))), limit)]
    output.result(
        lambda: {
            "dead_letters": [
                {
                    "epoch": each.epoch,
                    "source": each.source_id,
                    "kind": each.kind,
                    "records": each.rows,
                    "files": len(each.files),
                    "size_bytes": sum(file.size_bytes for file in each.files),
                }
                for each in found
            ]
        },
        lambda: _blocks(found, limit),
    )


def _blocks(found: list[Letters], limit: int | None) -> Iterator[Block]:
    if not found:
        yield Line("Nothing was set aside.")
        return
    columns = (
        Column("epoch", right=True),
        Column("source"),
        Column("kind"),
        Column("records", right=True),
        Column("files", right=True, optional=1),
        Column("size", right=True),
    )
    rows = [
        (
            str(each.epoch),
            str(each.source_id),
            each.kind,
            f"{each.rows:,}",
            f"{len(each.files):,}",
            wording.size(sum(file.size_bytes for file in each.files)),
        )
        for each in found
    ]
    yield Table(columns, rows)
    if limit is not None and len(found) == limit:
        yield Line(f"The newest {limit}; --limit all shows every one.")

"""``laminar state show``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.arrow_rows import rows_document, rows_table
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import TEXT, json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import open_history_of, pipeline_argument
from laminar_dagster.cli.state.reading import manifest_of
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.state_reader import OperatorState, read_state


@click.command("show")
@click.argument("operator", type=TEXT)
@pipeline_argument
@click.option(
    "--epoch",
    type=EPOCH,
    metavar="N",
    help="As it was after this epoch.  [default: the newest]",
)
@limit_option(50, "rows")
@json_option
@click.pass_context
def command(
    ctx: click.Context, operator: str, pipeline: str | None, epoch: int | None, limit: int | None
) -> None:
    """Show the open windows of an operator, and what is kept for each.

    OPERATOR is the name of a view with a window.
    """
    checkpoints = open_history_of(ctx, pipeline)
    manifest = manifest_of(ctx, checkpoints, pipeline, epoch)
    state = read_state(checkpoints, manifest, operator)
    shown = state.rows.slice(0, limit)
    output_of(ctx).result(
        lambda: {
            "operator": state.operator_id,
            "epoch": manifest.epoch,
            "keys": list(state.keys),
            "values": list(state.values),
            "rows_in_all": state.rows.num_rows,
            "rows": rows_document(shown),
        },
        lambda: _blocks(state, manifest, limit),
    )


def _blocks(
    state: OperatorState, manifest: CheckpointManifest, limit: int | None
) -> Iterator[Block]:
    count = state.rows.num_rows
    title = f"{state.operator_id} after epoch {manifest.epoch}"
    if not count:
        yield Line(f"{title}: no window is open.")
        return
    yield rows_table(state.rows.slice(0, limit), f"{title}: {wording.count(count, 'row')}")
    if limit is not None and count > limit:
        yield Line(f"{count - limit:,} more; --limit all shows every one.")

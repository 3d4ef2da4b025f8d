"""``laminar state diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click
import pyarrow as pa

from laminar_dagster.cli.arrow_rows import rows_document, rows_table
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import TEXT, json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import open_history_of, pipeline_argument
from laminar_dagster.cli.state.reading import manifest_of
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.runtime.state_reader import CHANGE, compare_states, read_state


@click.command("diff")
@click.argument("operator", type=TEXT)
@pipeline_argument
@click.option(
    "--from",
    "old",
    type=EPOCH,
    metavar="A",
    required=True,
    help="The epoch to start from.",
)
@click.option(
    "--to",
    "new",
    type=EPOCH,
    metavar="B",
    help="The epoch to compare with.  [default: the newest]",
)
@limit_option(50, "rows")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    operator: str,
    pipeline: str | None,
    old: int,
    new: int | None,
    limit: int | None,
) -> None:
    """Show which windows of an operator came, went (they closed) or changed between two epochs."""
    checkpoints = open_history_of(ctx, pipeline)
    before = manifest_of(ctx, checkpoints, pipeline, old)
    after = manifest_of(ctx, checkpoints, pipeline, new)
    changes = compare_states(
        read_state(checkpoints, before, operator), read_state(checkpoints, after, operator)
    )
    kinds = Counter(changes.column(CHANGE).to_pylist())
    output_of(ctx).result(
        lambda: {
            "operator": operator,
            "from": before.epoch,
            "to": after.epoch,
            "changes": {kind: kinds[kind] for kind in ("added", "gone", "changed")},
            "rows": rows_document(changes.slice(0, limit)),
        },
        lambda: _blocks(
            changes, kinds, f"{operator}, epoch {before.epoch} to {after.epoch}", limit
        ),
    )


def _blocks(
    changes: pa.Table, kinds: Counter[str], title: str, limit: int | None
) -> Iterator[Block]:
    if not changes.num_rows:
        yield Line(f"{title}: nothing changed.")
        return
    summary = ", ".join(f"{kinds[kind]:,} {kind}" for kind in ("added", "gone", "changed"))
    yield rows_table(changes.slice(0, limit), f"{title}: {summary}")
    if limit is not None and changes.num_rows > limit:
        yield Line(f"{changes.num_rows - limit:,} more; --limit all shows every one.")

"""``laminar dead-letters show``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from laminar_dagster.cli import wording
from laminar_dagster.cli.arrow_rows import rows_document, rows_table
from laminar_dagster.cli.numbers import EPOCH
from laminar_dagster.cli.options import TEXT, json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import open_history_of, pipeline_argument
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.dead_letters import LetterKind, Letters, letters_of_epoch, read_letters


@click.command("show")
@click.argument("epoch", metavar="N", type=EPOCH)
@pipeline_argument
@click.option("--source", type=TEXT, metavar="NAME", help="Of one source only.")
@click.option("--kind", type=click.Choice(["bad", "late"]), help="Of one kind only.")
@limit_option(20, "records of each kind")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    epoch: int,
    pipeline: str | None,
    source: str | None,
    kind: LetterKind | None,
    limit: int | None,
) -> None:
    """Show the records that epoch N set aside: where each stood, its bytes, and the reason."""
    checkpoints = open_history_of(ctx, pipeline)
    found = letters_of_epoch(checkpoints, epoch, source, kind)
    shown = [(letters, _first(checkpoints, letters, limit)) for letters in found]
    output_of(ctx).result(lambda: _document(epoch, shown), lambda: _blocks(shown))


def _first(checkpoints: CheckpointStore, letters: Letters, limit: int | None) -> pa.Table:
    """As many records as are to be shown; files that are not needed are not read."""
    tables: list[pa.Table] = []
    rows = 0
    for table in read_letters(checkpoints, letters):
        tables.append(table)
        rows += table.num_rows
        if limit is not None and rows >= limit:
            break
    return pa.concat_tables(tables).slice(0, limit)


def _document(epoch: int, shown: list[tuple[Letters, pa.Table]]) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "dead_letters": [
            {
                "source": letters.source_id,
                "kind": letters.kind,
                "records_in_all": letters.rows,
                "records": rows_document(table),
            }
            for letters, table in shown
        ],
    }


def _blocks(shown: list[tuple[Letters, pa.Table]]) -> Iterator[Block]:
    for letters, table in shown:
        count = wording.count(letters.rows, f"{letters.kind} record")
        yield rows_table(table, f"{letters.source_id}: {count}")
        if table.num_rows < letters.rows:
            yield Line(f"{letters.rows - table.num_rows:,} more; --limit all shows every one.")

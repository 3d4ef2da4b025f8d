"""``laminar txn list``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import pipeline_argument
from laminar_dagster.cli.tables import Block, Line
from laminar_dagster.cli.txn.finding import Found, find_transactions, table_of


@click.command("list")
@pipeline_argument
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None) -> None:
    """List the transactions of a pipeline's Kafka sinks that are not over.

    An epoch that is being committed just now is among them. Looks, and changes nothing.
    """
    asked, found = find_transactions(ctx, pipeline)
    output_of(ctx).result(
        lambda: {"transactions": [each.document() for each in found]},
        lambda: _blocks(asked, found),
    )


def _blocks(asked: int, found: list[Found]) -> Iterator[Block]:
    if found:
        yield table_of(found)
    elif asked:
        yield Line("No transaction is open.")
    else:
        yield Line("No sink of this pipeline has transactions that outlive their writer.")

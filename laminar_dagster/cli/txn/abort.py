"""``laminar txn abort``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.options import TEXT, json_option
from laminar_dagster.cli.output import Output, output_of
from laminar_dagster.cli.pipelines import pipeline_argument
from laminar_dagster.cli.tables import Block, Line, show
from laminar_dagster.cli.txn.finding import Found, find_transactions, table_of


@click.command("abort")
@pipeline_argument
@click.option("--id", "identity", type=TEXT, metavar="ID", help="One transactional id only.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, pipeline: str | None, identity: str | None, yes: bool) -> None:
    """End the transactions that a pipeline's Kafka sinks have left open.

    Nothing of them becomes visible, and whoever still writes one is fenced out. No epoch is lost:
    the next run commits it again from staged output. One that is committing already is not taken
    back; its commit is carried out.
    """
    output = output_of(ctx)
    _, found = find_transactions(ctx, pipeline)
    if identity is not None:
        found = [each for each in found if each.transaction.identity == identity]
        if not found:
            raise click.UsageError(f"no transaction with the id {identity!r} is open")
    if found and not yes:
        _confirm(output, found)
    for each in found:
        each.sink.abort_transaction(each.transaction.identity)
    output.result(
        lambda: {"ended": [each.document() for each in found]},
        lambda: _blocks(found),
    )


def _confirm(output: Output, found: list[Found]) -> None:
    if output.as_json:
        raise click.UsageError("with --json nobody can be asked; say --yes")
    show([table_of(found), *_warnings(found)])
    click.confirm("A pipeline that is committing now is fenced out. End them?", abort=True)


def _warnings(found: list[Found]) -> Iterator[Block]:
    for each in found:
        if each.transaction.state == "committing":
            yield Line(f"{each.transaction.identity} is committing: it will be there.")


def _blocks(found: list[Found]) -> Iterator[Block]:
    if not found:
        yield Line("No transaction is open.")
        return
    yield from _warnings(found)
    aborted = sum(each.transaction.state != "committing" for each in found)
    yield Line(f"{wording.count(aborted, 'transaction')} aborted.")

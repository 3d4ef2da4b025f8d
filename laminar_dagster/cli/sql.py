"""``laminar sql``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from laminar_dagster.cli.options import TEXT, json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_model, pipeline_argument
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.config.statements import Answer, run_statement


@click.command("sql")
@click.argument("statement", type=TEXT)
@pipeline_argument
@json_option
@click.pass_context
def command(ctx: click.Context, statement: str, pipeline: str | None) -> None:
    r"""Ask a pipeline about its parts, in SQL.

    \b
    SHOW SOURCES | SINKS | MATERIALIZED VIEWS
    DESCRIBE SOURCE | SINK | MATERIALIZED VIEW name

    A pipeline is its files: a DROP says what to remove where.
    """
    answer = run_statement(statement, find_model(ctx, pipeline))
    output_of(ctx).result(lambda: _document(answer), lambda: _blocks(answer))


def _document(answer: Answer) -> dict[str, Any]:
    return {
        "columns": list(answer.columns),
        "rows": [dict(zip(answer.columns, row, strict=True)) for row in answer.rows],
        "notes": list(answer.notes),
    }


def _blocks(answer: Answer) -> Iterator[Block]:
    if answer.rows:
        yield Table([Column(name, folds=12) for name in answer.columns], answer.rows)
    else:
        yield Line("None.")
    if answer.notes:
        yield Line()
    for note in answer.notes:
        for line in note.splitlines():
            yield Line(line)

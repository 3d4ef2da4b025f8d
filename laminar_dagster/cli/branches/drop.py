"""``laminar branch drop``."""

from __future__ import annotations

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.branches.opening import Named, branch_argument
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import find_config, open_history, project_of
from laminar_dagster.cli.tables import Line
from laminar_dagster.runtime.branches.dropping import drop
from laminar_dagster.runtime.branches.places import tables_folder
from laminar_dagster.runtime.clock import SystemClock


@click.command("drop")
@branch_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def command(ctx: click.Context, named: Named, yes: bool) -> None:
    """Remove a branch: its part of the store, and its tables below branches/.

    Nothing else is touched. What only the branch held back from collection goes with a later epoch.
    """
    pipeline, name = named
    output = output_of(ctx)
    config = find_config(ctx, pipeline)
    main = open_history(ctx, config)
    project = project_of(ctx).absolute()
    tables = tables_folder(project, config.name, name)
    if not yes:
        if output.as_json:
            raise click.UsageError("with --json nobody can be asked; say --yes")
        click.confirm(f"Branch {name} and its tables below {tables} go. Remove them?", abort=True)
    removed = drop(main, project, name, SystemClock())
    objects = wording.count(removed, "object")
    output.result(
        lambda: {"pipeline": config.name, "branch": name, "objects": removed},
        lambda: [Line(f"Branch {name} of {config.name} is dropped: {objects}, and its tables.")],
    )

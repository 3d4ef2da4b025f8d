"""``laminar schema``."""

from __future__ import annotations

import click

from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import print_json
from laminar_dagster.config.json_schema import pipeline_schema


@click.command("schema")
@json_option
def command() -> None:
    r"""Print the JSON schema of pipeline.yml, for editors.

    `laminar init` puts it beside a new pipeline.yml, whose first line names it. After an upgrade:

    \b
      laminar schema > dbt_like_configs/NAME/pipeline.schema.json
    """
    print_json(pipeline_schema())

"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option

_PACKAGE: Final = "laminar_dagster.cli.dead_letters"
_COMMANDS: Final = {
    "list": LazyCommand(f"{_PACKAGE}.listing", "List what was set aside, epoch by epoch."),
    "show": LazyCommand(f"{_PACKAGE}.show", "Show the records, and what is wrong with them."),
    "replay": LazyCommand(f"{_PACKAGE}.replay", "Put bad records back into their source."),
}


@click.group("dead-letters", cls=LazyGroup, lazy=_COMMANDS)
@json_option
def command() -> None:
    """Look at records that were set aside: bad ones, and late ones.

    They are kept for `retention.dead_letters` (7 days unless `pipeline.yml` says otherwise).
    """

"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option

_PACKAGE: Final = "laminar_dagster.cli.epochs"
_COMMANDS: Final = {
    "list": LazyCommand(f"{_PACKAGE}.listing", "List the epochs, newest first."),
    "show": LazyCommand(f"{_PACKAGE}.show", "Show all that an epoch read, counted and wrote."),
}


@click.group("epochs", cls=LazyGroup, lazy=_COMMANDS)
@json_option
def command() -> None:
    """Look at the epochs of a pipeline, also at those whose files are collected."""

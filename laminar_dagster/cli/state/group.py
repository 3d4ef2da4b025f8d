"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option

_PACKAGE: Final = "laminar_dagster.cli.state"
_COMMANDS: Final = {
    "show": LazyCommand(f"{_PACKAGE}.show", "Show the open windows of an operator."),
    "diff": LazyCommand(f"{_PACKAGE}.diff", "Show what changed between two epochs."),
}


@click.group("state", cls=LazyGroup, lazy=_COMMANDS)
@json_option
def command() -> None:
    """Look at the state of a pipeline's operators, as a table."""

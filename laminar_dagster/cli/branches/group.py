"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option

_PACKAGE: Final = "laminar_dagster.cli.branches"
_COMMANDS: Final = {
    "list": LazyCommand(f"{_PACKAGE}.listing", "List the branches, and how far each is."),
    "run": LazyCommand(f"{_PACKAGE}.run", "Replay what the pipeline has committed since."),
    "diff": LazyCommand(f"{_PACKAGE}.diff", "Compare what a branch and its pipeline put out."),
    "drop": LazyCommand(f"{_PACKAGE}.drop", "Remove a branch and its tables."),
}


@click.group("branch", cls=LazyGroup, lazy=_COMMANDS)
@json_option
def command() -> None:
    """Look after the branches of a pipeline, which `laminar fork` makes.

    A branch computes epochs of its pipeline once more, with the project as it is now, into tables
    of its own. `laminar promote` puts it in the pipeline's place.
    """

"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option, store_option

_PACKAGE: Final = "laminar_dagster.cli.checkpoints"
_COMMANDS: Final = {
    "list": LazyCommand(f"{_PACKAGE}.listing", "List the checkpoints, newest first."),
    "show": LazyCommand(f"{_PACKAGE}.show", "Show all that a checkpoint's manifest says."),
    "verify": LazyCommand(f"{_PACKAGE}.verify", "Read every file and compare size and SHA-256."),
    "gc": LazyCommand(f"{_PACKAGE}.gc", "Remove what no retained checkpoint reaches."),
}


@click.group("checkpoints", cls=LazyGroup, lazy=_COMMANDS)
@store_option
@json_option
def command(store: str | None) -> None:
    """Look at the checkpoints of a store, and collect garbage.

    Reading asks for no more than leave to read.
    """

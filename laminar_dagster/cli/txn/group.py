"""The group itself: which commands there are."""

from __future__ import annotations

from typing import Final

import click

from laminar_dagster.cli.lazy import LazyCommand, LazyGroup
from laminar_dagster.cli.options import json_option

_PACKAGE: Final = "laminar_dagster.cli.txn"
_COMMANDS: Final = {
    "list": LazyCommand(f"{_PACKAGE}.listing", "List transactions that are not over."),
    "abort": LazyCommand(f"{_PACKAGE}.abort", "End transactions that were left open."),
}


@click.group("txn", cls=LazyGroup, lazy=_COMMANDS)
@json_option
def command() -> None:
    """Look after the transactions of a pipeline's Kafka sinks.

    One that its writer has left open holds back readers of the topic until its time is up. The
    next commit of the sink ends it too: these commands are for pipelines that do not run.
    """

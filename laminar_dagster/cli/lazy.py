"""Groups of commands that cost nothing until one of them is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.exceptions import NoSuchCommand


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, and the line that stands for it in its group's help."""

    module: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, not when the group's help is shown.

    Each module holds its command under the name ``command``.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **options: Any) -> None:
        """Take the commands by name, in the order in which the help shows them."""
        super().__init__(*args, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for a name that there is not."""
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        command: click.Command = importlib.import_module(found.module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant, or say which name is nearest."""
        name = args[0]
        if name not in self._lazy and not name.startswith("-") and not ctx.resilient_parsing:
            raise NoSuchCommand(name, possibilities=self._lazy, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.summary) for name, found in self._lazy.items()])

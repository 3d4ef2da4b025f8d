"""Where results, warnings and errors go.

With ``--json``, standard output is one JSON document and nothing else. Warnings and progress go to
standard error either way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from laminar_dagster.cli.wording import clean
from laminar_dagster.config.redaction import redact


@dataclass(frozen=True, slots=True)
class Output:
    """How one run of the command line talks; commands find it as ``ctx.obj``."""

    as_json: bool

    def result(self, document: Callable[[], Any], blocks: Callable[[], Iterable[Any]]) -> None:
        """Print the result, in the form that was asked for; only that one is built."""
        if self.as_json:
            print_json(document())
        else:
            from laminar_dagster.cli.tables import show

            show(blocks())

    def warn(self, text: str) -> None:
        """Say what is odd, without standing in the way of the result."""
        click.echo(f"warning: {clean(redact(text))}", err=True)


def output_of(ctx: click.Context) -> Output:
    """How this run talks."""
    output = ctx.find_object(Output)
    assert output is not None
    return output


def print_json(document: Any) -> None:
    """Print one document on standard output."""
    encoding = (sys.stdout.encoding or "").lower()
    text = json.dumps(document, indent=2, ensure_ascii=not encoding.startswith("utf"))
    click.echo(text)

"""Options and values that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

CallableT = TypeVar("CallableT", bound=Callable[..., Any])

STORE_VARIABLE: Final = "LAMINAR_STORE"
PIPELINE_META: Final = "laminar.pipeline"

_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_WHOLE: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_EMPTY: Final = "it is empty; is a variable of the shell not set?"
_LONGEST: Final = timedelta(days=3650)


class TextType(click.ParamType[str]):
    """A name, an address, a statement: anything that is not empty.

    Empty is what a shell makes of a variable that is not set. Taken for a name or a folder, it
    would stand for one that nobody meant.
    """

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is empty, or white space alone."""
        text = str(value)
        if not text.strip():
            self.fail(_EMPTY, param, ctx)
        return text


class PathType(click.Path):
    """The path of a file or a folder, which is not empty."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Refuse what is empty: it would be the folder that we are in."""
        if not os.fspath(value).strip():
            self.fail(_EMPTY, param, ctx)
        return super().convert(value, param, ctx)


TEXT: Final = TextType()


def json_option(command: CallableT) -> CallableT:
    """``--json``. Whether it was given is known before anything is parsed: see ``ctx.obj``."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        help="Print one JSON document on standard output and nothing else.",
    )(command)


def store_option(command: CallableT) -> CallableT:
    """``--store`` and ``--pipeline``: the store of a command that ``open_checkpoints`` opens.

    The variable is read there, after the group's own options.
    """
    command = click.option(
        "--pipeline",
        type=TEXT,
        metavar="NAME",
        expose_value=False,
        callback=_remember_pipeline,
        help="The store of a pipeline of the project.  [default: the only one]",
    )(command)
    return click.option(
        "--store",
        type=TEXT,
        metavar="URL",
        help="The store: file:///path, a path, or s3://bucket/prefix.  "
        f"[env var: {STORE_VARIABLE}]",
    )(command)


def _remember_pipeline(ctx: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        ctx.meta[PIPELINE_META] = name


class DurationType(click.ParamType[timedelta]):
    """A span of time: ``90s``, ``30m``, ``1h``, ``1h30m``, ``2d``, ``1w``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        text = str(value).strip().lower()
        if not _WHOLE.fullmatch(text):
            self.fail(f"{value!r} is not a duration such as 90s, 30m, 1h30m or 2d", param, ctx)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PIECE.findall(text))
        if seconds > _LONGEST.total_seconds():
            self.fail(f"{value!r} is longer than ten years", param, ctx)
        return timedelta(seconds=seconds)


class LimitType(click.ParamType[int | None]):
    """How many to show: a number, or ``all``. Nothing is left out with ``all`` and with 0."""

    name = "number or all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Read it; None is no limit."""
        text = str(value).strip().lower()
        if text == "all":
            return None
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            self.fail(f"{value!r} is not a number from 0 on, nor `all`", param, ctx)
        return int(text) or None


def limit_option(default: int, noun: str) -> Callable[[CallableT], CallableT]:
    """``--limit``: so many of something, or every one."""
    return click.option(
        "--limit",
        type=LimitType(),
        default=str(default),
        show_default=True,
        metavar="N",
        help=f"How many {noun}; `all` for every one.",
    )

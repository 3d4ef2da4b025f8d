"""Whole numbers on the command line: what each is, and from where to where it may be.

Every number that a command takes is of one of these types, or a ``LimitType``: what is none is
answered alike everywhere, in words.
"""

from __future__ import annotations

import re
from typing import Any, Final

import click

from laminar_dagster.core.ids import MAX_EPOCH


class NumberType(click.ParamType[int]):
    """A whole number."""

    name = "number"

    def __init__(self, what: str, least: int, most: int | None = None) -> None:
        """Take what it is, for errors, and from where to where it may be."""
        self._what = what
        self._least = least
        self._most = MAX_EPOCH if most is None else most
        self._until = "on" if most is None else f"to {most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        text = str(value).strip()
        is_number = re.fullmatch(r"\d{1,19}", text, re.ASCII) is not None
        if not is_number or not self._least <= int(text) <= self._most:
            wanted = f"a whole number from {self._least} {self._until}"
            self.fail(f"{value!r} is not {self._what}: {wanted} is expected", param, ctx)
        return int(text)


EPOCH: Final = NumberType("the number of an epoch", 1)
EPOCH_OR_BEGINNING: Final = NumberType("the number of an epoch", 0)
HOW_MANY: Final = NumberType("a count", 1)
HOW_MANY_OR_NONE: Final = NumberType("a count", 0)
PORT: Final = NumberType("a port", 0, 65_535)

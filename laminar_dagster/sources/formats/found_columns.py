"""Columns discovered in a schema or in messages, rather than declared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A discovered field as a column.

    Attributes:
        type: The type in SQL; empty if no column can hold the field.
        nullable: Whether it may be null.
    """

    name: str
    type: str
    nullable: bool


def around(text: str, inner: str) -> str:
    """An outer type with the inner one put in; empty if no column can hold the inner one."""
    return text.format(inner) if inner else ""


def struct_of(fields: Mapping[str, str]) -> str:
    """A struct of the fields that a column can hold; the reader skips the others."""
    spelt = [f"{sql_name(name)}: {kind}" for name, kind in fields.items() if kind]
    return around("struct<{}>", ", ".join(spelt))


def sql_name(name: str) -> str:
    """A name in SQL, in backticks where it needs them."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"

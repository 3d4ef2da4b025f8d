"""Columns that were found and not declared: in a schema, or in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A field of a schema as a column.

    Attributes:
        type: As SQL spells it; empty if no column can hold it.
        nullable: Whether it may be null.
    """

    name: str
    type: str
    nullable: bool


def around(text: str, inner: str) -> str:
    """A type around another; empty if no column can hold that one."""
    return text.format(inner) if inner else ""


def struct_of(fields: Mapping[str, str]) -> str:
    """Of the fields that a column can hold: what is not declared is stepped over."""
    spelt = [f"{sql_name(name)}: {kind}" for name, kind in fields.items() if kind]
    return around("struct<{}>", ", ".join(spelt))


def sql_name(name: str) -> str:
    """A name as SQL takes it."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"

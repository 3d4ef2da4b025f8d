"""A construct of SQL that is supported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Supported:
    """A supported construct, an example of it, and a note."""

    name: str
    example: str
    note: str = ""

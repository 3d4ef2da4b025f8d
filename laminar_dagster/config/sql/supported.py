"""A construct of SQL that a pipeline takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Supported:
    """A construct, an example of it, and what there is to know about it."""

    name: str
    example: str
    note: str = ""

"""A reference table in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from laminar_dagster.core.errors import ReferenceUnavailable
from laminar_dagster.core.ids import ReferenceId
from laminar_dagster.core.ports import ReferenceFreshness, ReferenceRows

NAME = ReferenceId("fruit")


@dataclass
class MemoryReference:
    """A table in memory, which counts how often it is asked."""

    rows: bytes = b"one"
    knows_version: bool = True
    freshness: ReferenceFreshness = field(default_factory=lambda: ReferenceFreshness(timedelta(0)))
    declaration: str = "d" * 64
    away: bool = False
    looks: int = 0
    reads: int = 0

    @property
    def reference_id(self) -> ReferenceId:
        return NAME

    @property
    def address(self) -> str:
        return "memory://fruit"

    def version(self) -> str | None:
        self.looks += 1
        if self.away:
            raise ReferenceUnavailable(NAME, "nobody answers")
        return f"version {self.rows.decode()}" if self.knows_version else None

    def read(self) -> ReferenceRows:
        self.reads += 1
        return ReferenceRows(f"version {self.rows.decode()}", ((1, self.rows),))

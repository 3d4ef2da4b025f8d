"""What the places on database servers have in common: a mode, and all that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bench.sinks.rows import KEY
from infra.database import DatabaseEndpoint
from laminar_dagster.sinks.changes import Mode


@dataclass(frozen=True)
class DatabasePlace:
    """A table on a server, to which rows are added or in which they are replaced."""

    endpoint: DatabaseEndpoint
    mode: Mode

    connector: ClassVar[str]
    server: ClassVar[str]
    commit_limit = 0.05

    @property
    def name(self) -> str:
        """Of its figures."""
        return f"sink-{self.connector}/{self.mode}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.server}, {self.mode}"

    @property
    def replaces(self) -> bool:
        """See ``Place``."""
        return self.mode == "upsert"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell rows apart, where they are replaced."""
        return (KEY,) if self.replaces else ()

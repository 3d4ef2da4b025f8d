"""What a case builds on, and what it expects of a place where a sink writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from infra.service import Endpoint
from tests.integration.proof.sinks.accounts import KEY, Rows, View

Server = Literal["postgres", "mariadb", "kafka"]

# How a database is told to put rows by their key, or to add them.
WRITES: Final[dict[View, dict[str, str]]] = {
    "moves": {"mode": "append"},
    "balances": {"mode": "upsert", "key": KEY},
}


@dataclass(frozen=True)
class Ground:
    """What a case may build on.

    Attributes:
        root: Its own folder.
        name: Its own name: of its pipeline, a schema, a database, topics.
        servers: Those that run, as an independent client reaches them.
        doors: Where the sinks reach them instead: a wire in front of a server.
        expiry: Seconds after which a broker aborts a transaction.
    """

    root: Path
    name: str
    servers: Mapping[Server, Endpoint] = field(default_factory=dict, repr=False)
    doors: Mapping[Server, tuple[str, int]] = field(default_factory=dict)
    expiry: float = 4.0


class Place(Protocol):
    """Where one sink writes."""

    @property
    def kind(self) -> str:
        """Its name in `KINDS`, which is also that of the sink."""
        ...

    @property
    def view(self) -> View:
        """What is written there."""
        ...

    @property
    def server(self) -> Server | None:
        """Whose it is; None for files."""
        ...

    def make(self) -> None:
        """Prepare what the sink does not make itself."""

    def options(self) -> dict[str, str]:
        """What its ``CREATE SINK`` says, the connector included."""
        ...

    def is_commit(self, request: bytes) -> bool:
        """Whether this, on the wire, is what publishes the epoch."""
        ...

    def ledger(self) -> int:
        """The last epoch that is published; 0 before the first."""
        ...

    def rows(self) -> Rows:
        """All that a reader sees."""
        ...

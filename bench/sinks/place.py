"""Where a sink is measured, and who else writes the same rows there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.ports import Sink

PIPELINE: Final = PipelineName("bench")


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to write some rows, without a ledger and without a fence.

    Attributes:
        name: Short, for figures and for the table it writes to.
        title: For people.
        write: Writes all of the rows once, lastingly.
    """

    name: str
    title: str
    write: Callable[[], None]


class Place(Protocol):
    """A database, a cluster or a folder that nobody else uses.

    It pickles: memory is measured in a process of its own.
    """

    @property
    def name(self) -> str:
        """Of its figures."""
        ...

    @property
    def title(self) -> str:
        """For people."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether rows take the place of those with their key."""
        ...

    @property
    def commit_limit(self) -> float | None:
        """How many seconds a commit is to take at the most."""
        ...

    def sink(self) -> Sink:
        """The sink, with the options that it has by default."""
        ...

    def prepare(self, *names: str) -> None:
        """Make empty tables for peers, like the one that the sink has made."""
        ...

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """Who writes the rows too.

        The first encodes them as the sink has to, and is the measure. Others save themselves a
        part of the work, or do it in another way.
        """
        ...

    def count(self, name: str) -> int:
        """How many rows a peer's table holds, or the sink's own."""
        ...

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """Seconds that it takes to begin a transaction and nothing else, with an open client.

        Empty where there is no such thing.
        """
        ...

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """Seconds that it takes to take the rows back, when a plain client has written them all.

        None where there is no such thing.
        """
        ...

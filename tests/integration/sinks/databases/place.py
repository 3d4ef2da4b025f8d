"""A database of a test's own, on whichever server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from infra.database import DatabaseEndpoint
from laminar_dagster.core.ids import PipelineName, SinkId
from laminar_dagster.core.ports import ArrowSchema, Sink
from laminar_dagster.testing.sink_contract import Mode, Row, StagedRow
from tests.unit.sinks.staging import COLUMNS, SINK, encode

PIPELINE = PipelineName("clicks")
CLERKS_PASSWORD = "clerks-own-secret"


@dataclass(frozen=True)
class OtherClient:
    """A transaction of somebody else's; what it does not commit is rolled back."""

    execute: Callable[[str], object]
    commit: Callable[[], object]


@dataclass(frozen=True)
class OddNames:
    """Names that hold whatever the server can hold.

    Attributes:
        first: Has to be run before they can be used.
        selected: The table as a statement names it.
        options: Of the sink, beside its table and key.
    """

    first: str
    table: str
    selected: str
    key: str
    column: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class TlsOptions:
    """What a server's options for TLS are called.

    Attributes:
        strictest: The mode that checks who signed, and for which host.
        off: The mode in which a wire can tell one request from another.
    """

    mode: str
    authority: str
    certificate: str
    key: str
    strictest: str
    off: str


@dataclass(frozen=True)
class Traits:
    """What tells one server from another.

    Attributes:
        text: The type of a column of texts; of a key, ``key_text``.
        numbered: A column ``n`` with the number of each row, in their order.
        quote: What a name is put between.
        recently: Whether a column holds a moment of the last hour.
        shortest_limit: The least number of seconds that the tests have the server wait.
        goodbye: What a client says at last.
        least_requests: How many a commit takes at the least.
        commits_tables: Whether the tables are made with a COMMIT of their own.
        limits_in_a_stream: With which a lost request inside a stream is noticed.
        stuck_stream: What one is told who is kept out by a client that stands still in a stream;
            None where the server itself ends such a client.
        timed_out: What is said of a server that does not answer when it is connected to.
        hung_up: What is said of a COMMIT that is not answered.
    """

    text: str
    key_text: str
    numbered: str
    quote: str
    recently: str
    shortest_limit: float
    goodbye: bytes
    least_requests: int
    commits_tables: bool
    limits_in_a_stream: Mapping[str, float]
    stuck_stream: str | None
    timed_out: str
    hung_up: str
    odd_names: OddNames
    tls: TlsOptions


class DatabasePlace(ABC):
    """A database that nobody else uses, with one table for each sink: a ``SinkPlace``. Pickles.

    Attributes:
        endpoint: Where the server listens.
        database: Its name.
    """

    traits: ClassVar[Traits]
    endpoint: DatabaseEndpoint
    database: str

    @abstractmethod
    def sink(
        self,
        table: str = "t",
        *,
        sink_id: SinkId = SINK,
        limits: Mapping[str, float] = {},
        server: Mapping[str, Any] = {},
        **options: Any,
    ) -> Sink:
        """A sink on a table, with some fields of its server replaced."""

    @abstractmethod
    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What an independent client gets."""

    @abstractmethod
    def other(self) -> AbstractContextManager[OtherClient]:
        """A transaction that is begun."""

    @abstractmethod
    def relations(self) -> list[str]:
        """The names of all tables, views and sequences, sorted."""

    @abstractmethod
    def columns_of(self, table: str) -> list[str]:
        """The names of a table's columns."""

    @abstractmethod
    def sessions(self) -> list[int]:
        """The sessions of others in this database."""

    @abstractmethod
    def end_session(self, session: int) -> None:
        """As an administrator does."""

    @abstractmethod
    def waiting(self) -> int:
        """How many sessions wait for a lock on a row."""

    @abstractmethod
    def refuse_writes(self) -> AbstractContextManager[None]:
        """The server as a replica is."""

    @abstractmethod
    def is_commit(self, request: bytes) -> bool:
        """Whether a request on the wire is a COMMIT."""

    @abstractmethod
    def counts(self, request: bytes) -> bool:
        """Whether a request comes by itself, each time."""

    @abstractmethod
    def halt_in_stream(self, patch: pytest.MonkeyPatch, halt: Callable[[], None]) -> None:
        """Have the sinks of this process call a function in the middle of a stream of rows."""

    @abstractmethod
    def is_encrypted(self, sink: Sink) -> bool:
        """Whether a sink's connections are."""

    @property
    @abstractmethod
    def clerk(self) -> str:
        """The name of an account of no rights."""

    @abstractmethod
    def make_clerk(self) -> None:
        """An account that may do nothing, and a table ``t`` that is not its own."""

    @abstractmethod
    def drop_clerk(self) -> None:
        """Remove the account, where it is not the database's."""

    @abstractmethod
    def grant_all(self) -> None:
        """Let the account do everything with tables."""

    @abstractmethod
    def read(self, sink_id: SinkId) -> list[Row]:
        """See ``SinkPlace``."""

    # --- the same on every server -----------------------------------------------------------------

    def login(self, **others: Any) -> dict[str, Any]:
        """The fields of the database as a server, with some of them replaced."""
        return {
            "host": self.endpoint.host,
            "port": self.endpoint.port,
            "database": self.database,
            "user": self.endpoint.user,
            "password": self.endpoint.password,
            **others,
        }

    def as_clerk(self, **options: Any) -> Sink:
        """A sink that gets in with that account."""
        server = {"user": self.clerk, "password": CLERKS_PASSWORD}
        return self.sink(server=server, limits={"lock": 1}, **options)

    def grant(self, what: str) -> None:
        """Give the account a right."""
        self.query(f"GRANT {what} TO {self.clerk}")

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        key = ("key",) if mode == "upsert" else ()
        limits = {"lock": 3}
        return self.sink(f"rows of {sink_id}", sink_id=sink_id, limits=limits, mode=mode, key=key)

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        return encode(rows, weights)

    def columns(self) -> ArrowSchema:
        return COLUMNS

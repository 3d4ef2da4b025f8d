"""Places where an epoch is published, each with a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal, Protocol, runtime_checkable

from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.offsets import SourcePosition


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """How far a source was read, for a sink that can write it down together with the epoch.

    Attributes:
        cluster_id: Of the service that holds the group.
        group_id: Who is told, for people's tools. Nothing depends on it.
        positions: Where the source goes on after the epoch.
    """

    cluster_id: str
    group_id: str
    positions: tuple[SourcePosition, ...]


class ArrowSchema(Protocol):
    """Columns and their types, by Arrow's PyCapsule interface; ``pyarrow.Schema`` is one."""

    def __arrow_c_schema__(self) -> object:
        """A capsule that holds an ``ArrowSchema``."""
        ...


class TransactionProgress(Protocol):
    """Told by a sink how far its transaction is: for people, nothing depends on it.

    A sink that has the epoch already need not begin. How a transaction ends is told by the end of
    ``Sink.commit``.
    """

    def begun(self) -> None:
        """The transaction is open, and is the only one."""
        ...

    def wrote(self, rows: int) -> None:
        """So many more rows were handed to the server."""
        ...

    def committing(self) -> None:
        """The commit is about to be sent."""
        ...

    def aborted(self) -> None:
        """What was begun is rolled back, and the sink tries once more in the same call."""
        ...


class Unwatched:
    """Nobody wants to know."""

    def begun(self) -> None:
        """Go on."""

    def wrote(self, rows: int) -> None:
        """Go on."""

    def committing(self) -> None:
        """Go on."""

    def aborted(self) -> None:
        """Go on."""


_UNWATCHED: Final = Unwatched()


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What a sink is to commit.

    Attributes:
        entry: Its files, as the manifest names them.
        read: The bytes of one of them; raises ``ObjectMissing`` or ``ChecksumMismatch`` rather
            than hand out anything else than what was staged.
        progress: To be told how the transaction goes.
        offsets: How far the epoch has read sources that keep such a record. A sink may write it
            down in its own transaction, or leave it: the sources are told later in any case.
        open: One of the files to be read in parts, by who needs few of its columns; nothing is
            compared with what was staged. None where a file is read as a whole only.
    """

    entry: SinkEntry
    read: Callable[[FileEntry], bytes]
    progress: TransactionProgress = _UNWATCHED
    offsets: tuple[GroupOffsets, ...] = ()
    open: Callable[[FileEntry], BinaryIO] | None = None


class Sink(Protocol):
    """Publishes an epoch in one transaction of its own that also moves its ledger.

    No transaction outlives a call. The ledger is the fence: it moves from N-1 to N only.
    """

    @property
    def sink_id(self) -> SinkId:
        """Its name within the pipeline."""
        ...

    @property
    def address(self) -> str:
        """Where it is, as a URL without secrets: the same for everybody who uses it."""
        ...

    @property
    def targets(self) -> frozenset[str]:
        """What it writes to, spelled in one way however its author has written it.

        Several for a service of several servers. Sinks that share one write into each other.
        """
        ...

    def ledger(self) -> EpochNumber | None:
        """The last committed epoch, as any other reader would see it; None before the first.

        Raises:
            SinkUnavailable: It cannot be reached.
        """
        ...

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        """Find out whether rows of a schema could be committed now. Changes nothing.

        Asked before an epoch is published, and by people beforehand.

        Args:
            schema: The columns of the view.
            staged: What an epoch has staged; None while there is none. What a commit would refuse
                of its values is refused here: once an epoch is prepared, its rows stay as they are.

        Raises:
            InvalidConfig: They could not, and why: a table, a column, a type, a right, a value.
            ObjectMissing, ChecksumMismatch, MalformedDocument: What is staged cannot be read.
            BufferOverflow: One transaction cannot hold what is staged.
            SinkUnavailable: It cannot be asked.
            AuthFailed: It does not let us in.
        """
        ...

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """Redo the staged output and move the ledger to ``epoch``, in one transaction.

        Idempotent: with the ledger at ``epoch`` already, nothing changes.

        Raises:
            LedgerMismatch: The ledger is behind the epoch before.
            FencedOut: The ledger is past ``epoch``: another process went on.
            CommitOutcomeUnknown: The commit was sent and no reply came. Read the ledger.
            ConnectionLost, SinkUnavailable: Nothing was published.
            WriteFailed: The sink refused a row. Nothing was published.
        """
        ...


class ArrowRows(Protocol):
    """Rows, by Arrow's PyCapsule interface; ``pyarrow.Table`` is one."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule that holds an ``ArrowArrayStream``."""
        ...


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """How many keys there are, and one of them for people; empty if there are none."""

    count: int
    example: str


@runtime_checkable
class Searchable(Protocol):
    """A sink that can say which keys it holds."""

    def held_keys(self, schema: ArrowSchema, keys: ArrowRows) -> HeldKeys:
        """Those keys of some that the sink holds a row of, as any other reader would see it.

        Changes nothing.

        Args:
            schema: The columns of the view.
            keys: The columns of the sink's key, as the view has them. None stands there twice.

        Raises:
            InvalidConfig: The table does not take the view's columns.
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@runtime_checkable
class Unconstrained(Protocol):
    """A sink whose table does not forbid several rows of one key by itself."""

    def repeated_keys(self) -> HeldKeys:
        """Those keys of which the table has several rows; none where the sink has no key.

        Changes nothing. Reads the key columns of the whole table.

        Raises:
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Published:
    """What a ledger says: the last epoch, and ``SinkEntry.output_sha256`` of what it put out."""

    epoch: EpochNumber
    output_sha256: str


@runtime_checkable
class Attesting(Protocol):
    """A sink whose ledger tells what it holds, not only how far it is.

    A store that lost an epoch, or was set back, may come to another epoch of the same number. By
    the number alone, the sink would seem to have it.
    """

    def published(self) -> Published | None:
        """As ``Sink.ledger``; None also where nothing is known of the output.

        Raises:
            SinkUnavailable: It cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction of a sink that is not over.

    Attributes:
        identity: What the server knows it by.
        state: ``open`` is written to, or was left behind; one that is ``committing`` or
            ``aborting`` is being ended, and its outcome is decided.
        age: How long it has been open, in seconds.
        timeout: After how many seconds the server ends it by itself.
        writer: Who the server takes for its writer.
        coordinator: Where it is kept.
        places: What it has written to.
    """

    identity: str
    state: Literal["open", "committing", "aborting"]
    age: float
    timeout: float
    writer: str
    coordinator: str
    places: tuple[str, ...]


@runtime_checkable
class Transactional(Protocol):
    """A sink whose server keeps transactions apart from the connection that opened them."""

    def pending_transactions(self) -> tuple[PendingTransaction, ...]:
        """Those of this sink that are not over. Changes nothing.

        Raises:
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...

    def abort_transaction(self, identity: str) -> None:
        """End a transaction of this sink; its writer, if there still is one, is fenced out.

        One that is committing is not taken back: its commit is carried out.

        Raises:
            SinkUnavailable, AuthFailed, TransactionInitFailed: It cannot be done now.
        """
        ...

"""The sink port: where an epoch is published. Each sink has a ledger of its own."""

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
        cluster_id: The id of the service that holds the group.
        group_id: The group whose offsets are moved, for people's tools. Nothing depends on it.
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
    """Callbacks by which a sink reports its transaction's progress: for people, and for proofs.

    A sink that already has the epoch need not call ``begun``. There is no callback for the end: it
    is the return, or the error, of ``Sink.commit``.
    """

    def begun(self) -> None:
        """The transaction is open, and is the only one."""
        ...

    def wrote(self, rows: int) -> None:
        """More rows were sent to the server."""
        ...

    def committing(self) -> None:
        """Everything is written, and what publishes it is sent next: proofs kill a process here."""
        ...

    def aborted(self) -> None:
        """The transaction was rolled back, and the sink retries in the same call."""
        ...


class Unwatched:
    """A ``TransactionProgress`` that ignores every report."""

    def begun(self) -> None:
        """Ignore it."""

    def wrote(self, rows: int) -> None:
        """Ignore it."""

    def committing(self) -> None:
        """Ignore it."""

    def aborted(self) -> None:
        """Ignore it."""


_UNWATCHED: Final = Unwatched()


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What a sink is to commit.

    Attributes:
        entry: Its files, as the manifest names them.
        read: Reads a file and checks its hash; raises ``ObjectMissing`` or ``ChecksumMismatch``
            rather than return anything but the staged bytes.
        progress: Receives reports of the transaction's progress.
        offsets: Consumer group offsets after the epoch, for sources that have them. A sink may
            commit them in its own transaction, or ignore them: sources are acknowledged anyway.
        open: Opens a file to read some of its columns, without checking its hash. None where files
            can only be read whole.
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
        """Its address, as a URL without secrets: the same in every pipeline that uses it."""
        ...

    @property
    def targets(self) -> frozenset[str]:
        """What it writes to, spelled canonically, however its author wrote it.

        Several for a service of several servers. Two sinks that share a target would overwrite
        each other.
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

        Called before an epoch is prepared, and by commands that check a pipeline.

        Args:
            schema: The columns of the view.
            staged: The staged output of an epoch; None without one. Values that a commit would
                refuse are refused here: once an epoch is prepared, its rows cannot change any more.

        Raises:
            InvalidConfig: They could not, and why: a table, a column, a type, a right, a value.
            ObjectMissing, ChecksumMismatch, MalformedDocument: The staged output cannot be read.
            BufferOverflow: One transaction cannot hold the staged output.
            SinkUnavailable: The sink cannot be reached.
            AuthFailed: The sink refuses the credentials.
        """
        ...

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """Write the staged output and move the ledger to ``epoch``, in one transaction.

        Idempotent: with the ledger at ``epoch`` already, nothing changes.

        Raises:
            LedgerMismatch: The ledger is before ``epoch - 1``.
            FencedOut: The ledger is past ``epoch``: another process took over.
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
    """The number of keys, and one of them as an example for people; empty if there are none."""

    count: int
    example: str


@runtime_checkable
class Searchable(Protocol):
    """A sink that can be searched for keys."""

    def held_keys(self, schema: ArrowSchema, keys: ArrowRows) -> HeldKeys:
        """Which of these keys the sink has rows of, as any other reader would see them.

        Changes nothing.

        Args:
            schema: The columns of the view.
            keys: The columns of the sink's key, as the view has them, without duplicates.

        Raises:
            InvalidConfig: The table does not take the view's columns.
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@runtime_checkable
class Unconstrained(Protocol):
    """A sink whose table has no constraint against several rows of one key."""

    def repeated_keys(self) -> HeldKeys:
        """The keys of which the table has several rows; none if the sink has no key.

        Changes nothing. Reads the key columns of the whole table.

        Raises:
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Published:
    """The content of a ledger: the last epoch, and ``SinkEntry.output_sha256`` of its output."""

    epoch: EpochNumber
    output_sha256: str


@runtime_checkable
class Attesting(Protocol):
    """A sink whose ledger stores a hash of the last epoch's output beside its number.

    A store that lost an epoch, or was restored from a backup, may compute another epoch of the same
    number. By the number alone, the sink would seem to have it.
    """

    def published(self) -> Published | None:
        """As ``Sink.ledger``, with the hash; None also where the hash is not known.

        Raises:
            SinkUnavailable: It cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A transaction of a sink that is not over.

    Attributes:
        identity: Its id on the server.
        state: An ``open`` one is being written to, or was left behind by a crash; of one that is
            ``committing`` or ``aborting`` the outcome is decided.
        age: How long it has been open, in seconds.
        timeout: After how many seconds the server aborts it by itself.
        writer: The writer, as the server names it.
        coordinator: The server that keeps it.
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
        """The unfinished transactions of this sink. Changes nothing.

        Raises:
            SinkUnavailable, AuthFailed: It cannot be asked.
        """
        ...

    def abort_transaction(self, identity: str) -> None:
        """End a transaction of this sink; its writer, if there still is one, is fenced out.

        One that is committing cannot be aborted any more: its commit is completed.

        Raises:
            SinkUnavailable, AuthFailed, TransactionInitFailed: It cannot be done now.
        """
        ...

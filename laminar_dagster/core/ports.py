"""The ports: what the core asks of the world, as Protocols.

Each docstring states the guarantee, what is idempotent, and which errors are raised. A published
contract suite in ``laminar_dagster.testing`` checks an adapter against the words here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from laminar_dagster.core.errors import InvalidConfig, LaminarError
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
    SinkId,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    FileEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import SourceIdentity, SourcePosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, SourcePlan


class ArrowBatch(Protocol):
    """Columns of records, passed without copying (the Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The schema and array capsules."""
        ...


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing tells of an object."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object and the version to name when replacing it."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """A flat space of immutable objects below a base, and one that moves forward (``_latest``).

    Keys come from ``core.layout`` and are relative to the base; nothing outside the base is ever
    read, listed or deleted. A reader sees a whole object or none. What a call reported as written
    survives a crash of the machine. Adapters time out on every request and retry, with backoff and
    jitter, what is safe to retry.

    Every method raises ``StoreUnavailable`` when the store does not answer and ``AuthFailed`` when
    it refuses the credentials. Adapters are safe to share between threads, and pickle (without
    their connections), because executors open the same store.
    """

    @property
    def url(self) -> str:
        """The store's address, without secrets, for people."""
        ...

    def probe(self) -> None:
        """Prove that conditions are honoured. Leaves nothing behind.

        Raises:
            ConditionsIgnored: A second conditional create or a stale replace went through.
        """
        ...

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not exist.

        Exactly one of several racing writers succeeds. Idempotent for one writer: when the same
        bytes are already there, the call succeeds, because the conflict may be with its own
        earlier request whose reply was lost.

        Raises:
            ObjectExists: Somebody else's bytes are there.
            WriteOutcomeUnknown: No usable reply, and the object cannot be read back.
        """
        ...

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """Write an object if its version is still the expected one; None expects no object.

        Idempotent as ``create`` is.

        Raises:
            ObjectExists: The object is at another version (or there, or gone) with other bytes.
            WriteOutcomeUnknown: No usable reply, and the object cannot be read back.
        """
        ...

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write an object without a condition, under a key that only this writer uses."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """As ``put``, from a local file of any size, in parts where the store has them."""
        ...

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The whole object, fetched in parallel ranges when it is large.

        Raises:
            ObjectMissing: There is none.
            MalformedDocument: It is larger than ``limit``; it is then not fetched.
        """
        ...

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """The whole object with its version, or None."""
        ...

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start``; fewer at the end, none past it.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """Several objects side by side, in the order asked for; an error stands in its place."""
        ...

    def download(self, key: str, path: Path) -> None:
        """The object into a local file, which appears whole or not at all.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key begins with ``prefix`` and sorts after ``start_after``, sorted.

        Objects whose writing never finished are not listed.
        """
        ...

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The names directly below a prefix that ends with ``/``, sorted; a thousand a request."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. Idempotent: one that is gone already is no error."""
        ...

    def sweep(self, before: datetime) -> int:
        """Remove what unfinished writes left behind before a moment; returns how many."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """How much an epoch may take at most. None is no limit."""

    max_records: int | None = None
    max_bytes: int | None = None


class Source(Protocol):
    """A replayable stream. Reading a range twice gives the same records in the same order."""

    @property
    def source_id(self) -> SourceId:
        """Its name within the pipeline."""
        ...

    @property
    def address(self) -> str:
        """Where it is, as a URL without secrets: the same for everybody who uses it."""
        ...

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose the end of the next epoch's ranges, at one moment.

        Starts where the last checkpoint ended, or at the source's beginning for new partitions.
        ``previous`` is the last epoch's plan, whose pinned identity must still hold.

        Raises:
            SourceReplaced: It is another source than the one that was pinned.
            RetentionExpired: It no longer holds ``start``, and ``on_gap`` does not allow a gap.
            SourceUnavailable: It cannot be reached.
        """
        ...

    def verify(self, plan: SourcePlan) -> None:
        """Check that it still holds what a plan pinned, before an attempt reads it.

        Raises:
            SourceReplaced, RetentionExpired: It does not.
            SourceUnavailable: It cannot be reached.
        """
        ...

    def identity(self) -> SourceIdentity:
        """What tells this source from a look-alike."""
        ...

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut a planned range into pieces that can be read side by side, in order."""
        ...

    def reader(self) -> SplitReader:
        """A reader for the executors."""
        ...

    def check_seek(self, position: SourcePosition) -> None:
        """Find out, before recovery promises anything, whether reading can resume there.

        Raises:
            RetentionExpired, SlotNotFound, SourceReplaced, SeekFailed: It cannot, and why.
        """
        ...

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Tell the source how far every sink has committed. Idempotent, never needed to be right.

        Raises:
            AcknowledgeFailed: It was not told.
        """
        ...


class Replayable(Protocol):
    """A source that takes records back which could not be decoded at first."""

    def replay(self, batch: str, letters: Any) -> tuple[str, ...]:
        """Append records, to be read as if they had just come.

        Args:
            batch: Names the records; the same batch is taken once.
            letters: An Arrow table as ``DecodedChunk.bad``, all of them whole.

        Returns:
            Where they stand now.

        Raises:
            AlreadyReplayed: The batch was taken before.
            InvalidConfig: Such records cannot be written back.
            SourceUnavailable: It cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """Records of a split, decoded together.

    Attributes:
        rows: The good ones, in order, with the source's columns.
        bad: The others, in order: ``partition``, ``position``, ``raw``, ``reason``, and
            ``is_whole``, which is false where ``raw`` is only the record's beginning.
        records: How many there were, good and bad, of ``size_bytes`` in all.
    """

    rows: Any
    bad: Any
    records: int
    size_bytes: int


class SplitReader(Protocol):
    """Reads one split on an executor. Pickles; opens its own connection."""

    def read(self, split: SourceRange) -> Iterator[DecodedChunk]:
        """All records of the range, in order, in the same chunks on every machine.

        Raises:
            SourceUnavailable, RetentionExpired: as their names say.
        """
        ...


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What a sink is to commit.

    Attributes:
        entry: Its files, as the manifest names them.
        read: The bytes of one of them; raises ``ObjectMissing`` or ``ChecksumMismatch`` rather
            than hand out anything else than what was staged.
    """

    entry: SinkEntry
    read: Callable[[FileEntry], bytes]


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

    def ledger(self) -> EpochNumber | None:
        """The last committed epoch, as any other reader would see it; None before the first.

        Raises:
            SinkUnavailable: It cannot be reached.
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


class StateStore(Protocol):
    """Operator state as immutable files. Used on executors; pickles."""

    def write_snapshot(
        self,
        checkpoint: CheckpointId,
        operator: OperatorId,
        partition: PartitionId,
        rows: Iterable[ArrowBatch],
    ) -> PartitionSnapshotEntry:
        """Write the full state of a partition. The same rows give the same bytes."""
        ...

    def write_delta(
        self,
        checkpoint: CheckpointId,
        operator: OperatorId,
        partition: PartitionId,
        rows: Iterable[ArrowBatch],
    ) -> PartitionSnapshotEntry:
        """Write what an epoch adds to a partition. The same rows give the same bytes."""
        ...

    def read(self, home: CheckpointId, entry: PartitionSnapshotEntry) -> Iterator[ArrowBatch]:
        """The rows of a file, its SHA-256 checked before the first row is handed out.

        Raises:
            ObjectMissing, ChecksumMismatch, RestoreFailed: as their names say.
        """
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """What speaks against publishing an epoch.

    Attributes:
        check: One of those that ``core.gate`` names.
        subject: The view, or the source.
    """

    check: str
    subject: str
    problem: str


@dataclass(frozen=True, slots=True)
class EpochOutput:
    """What an attempt computed and wrote below its own checkpoint folder."""

    operators: tuple[OperatorSnapshotEntry, ...]
    sources: tuple[SourceOffsetEntry, ...]
    sinks: tuple[SinkEntry, ...]
    dead_letters: tuple[DeadLetterEntry, ...]
    counts: RecordCounts
    watermark: int | None
    violations: tuple[Violation, ...] = ()


class Engine(Protocol):
    """Runs the bounded job of an epoch."""

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        """Carry out a plan on top of the parent's state; write only below the attempt's folder.

        Deterministic: two attempts at one plan give the same rows, the same state and the same
        hashes. Touches no sink.
        """
        ...

    def mistakes(self) -> tuple[InvalidConfig, ...]:
        """What the engine has against the pipeline's queries. Nothing is read or run."""
        ...

"""The port for snapshots of a source: the copy of its tables that precedes its change log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from laminar_dagster.core.ids import CheckpointId, FileName
from laminar_dagster.core.offsets import SourceIdentity, SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.snapshot import SnapshotFile, SourceSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotDraft:
    """A snapshot that is being copied by one process. No reader uses it yet."""

    number: int
    draft_id: CheckpointId


class SnapshotKeeper(Protocol):
    """The snapshots of one source. Pickles, because executors read the files.

    A finished snapshot never changes. Of several drafts of one number, one is finished; the files
    of the others are garbage. Files go when no retained checkpoint can need them; descriptions
    stay.

    Every method raises ``StoreUnavailable`` and ``AuthFailed`` as the store does.
    """

    def newest(self) -> SourceSnapshot | None:
        """The snapshot with the greatest number, if there is any.

        Raises:
            MalformedDocument, ChecksumMismatch: Its description is damaged.
        """
        ...

    def find(self, number: int) -> SourceSnapshot:
        """A finished snapshot.

        Raises:
            ObjectMissing: There is none of that number.
            MalformedDocument, ChecksumMismatch: Its description is damaged.
        """
        ...

    def begin(self, number: int) -> SnapshotDraft:
        """A draft with a new id. Writes nothing."""
        ...

    def marks(self, number: int, name: FileName) -> tuple[bytes, ...]:
        """The files of a name from all drafts of that number, finished or not.

        From them a source recognises as its own what a crash has left on the server.
        """
        ...

    def write(self, draft: SnapshotDraft, name: FileName, rows: int, data: bytes) -> SnapshotFile:
        """Write a file of a draft, durably. Safe from several threads."""
        ...

    def finish(
        self,
        draft: SnapshotDraft,
        position: SourcePosition,
        identity: SourceIdentity,
        files: tuple[SnapshotFile, ...],
    ) -> SourceSnapshot:
        """Make a draft the snapshot of its number.

        Raises:
            ObjectExists: Another draft was finished before; use that one.
        """
        ...

    def read(self, snapshot: SourceSnapshot, file: SnapshotFile) -> bytes:
        """The bytes of a file, exactly those that were written.

        Raises:
            ObjectMissing: It is gone.
            ChecksumMismatch: It is not what it was.
        """
        ...


@runtime_checkable
class Snapshotting(Protocol):
    """A source that begins with a copy of what it holds."""

    def prepare(self, previous: SourcePlan | None, start: tuple[SourcePosition, ...]) -> None:
        """Make sure that the next epoch can be planned: take the snapshot it begins with.

        Called before ``plan``, with the same arguments, but only by a process that will write the
        plan. Idempotent; after a crash it starts over. ``plan`` itself takes no snapshot: without
        one, it only reports that there is something to read.

        Raises:
            SourceUnavailable: The server is unavailable, or another process takes the snapshot now.
            LaminarError: The source is not set up for it; says what to do.
        """
        ...

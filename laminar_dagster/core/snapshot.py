"""The snapshot of a source: what a database held before its log of changes is read.

A database offers a consistent view of its tables only while a connection is open, so a plan cannot
refer to it. The copy is made before the first epoch is planned, into immutable files. This document
describes it once it is complete: from then on every attempt reads the same bytes.

A source has a snapshot 1, and further ones only if a setting accepts that its log was lost.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta

from laminar_dagster.core.document import (
    Document,
    Natural,
    Record,
    Sha256,
    Timestamp,
    require_utc,
)
from laminar_dagster.core.ids import CheckpointId, FileName, SourceId
from laminar_dagster.core.offsets import (
    MysqlPosition,
    PostgresPosition,
    SourceIdentity,
    SourcePosition,
    progress_of,
)

FIRST_SNAPSHOT = 1


class SnapshotFile(Record, frozen=True, kw_only=True):
    """A file of rows: Arrow IPC, in the order in which they are read."""

    name: FileName
    rows: Natural
    size_bytes: Natural
    sha256: Sha256


class FilePiece(NamedTuple):
    """Rows ``start`` to ``end`` of a file, counted from its own first row."""

    file: SnapshotFile
    start: int
    end: int


class SourceSnapshot(Document, frozen=True, kw_only=True):
    """A finished snapshot.

    Attributes:
        number: 1 for the first snapshot, one more for each later one.
        draft_id: The folder of its files: two processes that copy at once never share one.
        position: Where the log goes on after the last row of the snapshot.
        identity: What the source was when it was copied.
        files: In the order in which their rows are read.
    """

    source_id: SourceId
    number: Annotated[int, Meta(ge=FIRST_SNAPSHOT, le=2**63 - 1)]
    draft_id: CheckpointId
    taken_at: Timestamp
    position: SourcePosition
    identity: SourceIdentity
    files: tuple[SnapshotFile, ...]

    def __post_init__(self) -> None:
        """Refuse a snapshot that contradicts itself."""
        require_utc("taken_at", self.taken_at)
        if not isinstance(self.position, PostgresPosition | MysqlPosition):
            raise ValueError("a snapshot ends at a position in a log of changes")
        if self.position.snapshot is not None:
            raise ValueError("a snapshot ends where the log begins, not within a snapshot")
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError("a file stands twice in a snapshot")

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    def pieces(self, start: int, end: int) -> tuple[FilePiece, ...]:
        """The pieces of files that hold the rows ``start`` to ``end`` of the snapshot.

        Raises:
            ValueError: It has fewer rows.
        """
        if not 0 <= start <= end <= self.rows:
            raise ValueError(f"snapshot {self.number} has {self.rows} rows, not {start} to {end}")
        found: list[FilePiece] = []
        first = 0
        for file in self.files:
            begin, until = max(start - first, 0), min(end - first, file.rows)
            if begin < until:
                found.append(FilePiece(file, begin, until))
            first += file.rows
        return tuple(found)

    def is_behind(self, position: SourcePosition) -> bool:
        """Whether a reader at that position has already read all of it."""
        return type(position) is type(self.position) and progress_of(self.position) <= progress_of(
            position
        )

"""A reference table as an epoch's plan pins it: a copy in the store, by name, size and SHA-256.

A reference table changes while a stream is joined with it, and next week nobody can read what it
held today. So its rows are copied before the plan is written, and the plan names the copy. Every
attempt at the epoch, and every later re-run, reads exactly these bytes.

If the table has not changed, later plans name the same copy: it is stored once.
"""

from __future__ import annotations

from datetime import datetime

from laminar_dagster.core import layout
from laminar_dagster.core.document import (
    Record,
    Sha256,
    Text,
    Timestamp,
    require_utc,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber, ReferenceId
from laminar_dagster.core.snapshot import SnapshotFile


class ReferencePin(Record, frozen=True, kw_only=True):
    """Which rows of a reference table an epoch sees.

    Attributes:
        version: The table's own version, such as the number of a Delta version.
        declaration: A hash of the columns, key and options by which it was read. Another
            declaration needs another copy.
        epoch: The epoch for whose plan it was copied.
        copy_id: The folder of its files: two processes that copy at once never share one.
        checked_at: The logical clock of the plan for which the table was last checked.
        files: The files, in the order of their rows.
        unavailable_since: The clock of the first plan since ``checked_at`` that found the table
            unavailable and used this copy; None if none did.
    """

    reference_id: ReferenceId
    version: Text
    declaration: Sha256
    epoch: EpochNumber
    copy_id: CheckpointId
    checked_at: Timestamp
    files: tuple[SnapshotFile, ...]
    unavailable_since: Timestamp | None = None

    def __post_init__(self) -> None:
        """Refuse a pin that contradicts itself."""
        require_utc("checked_at", self.checked_at)
        if self.unavailable_since:
            require_utc("unavailable_since", self.unavailable_since)
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError(f"a file of reference table {self.reference_id} is pinned twice")

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def copied_at(self) -> datetime:
        """When the copy was made, by the clock of the machine that made it."""
        return self.copy_id.timestamp

    @property
    def is_kept(self) -> bool:
        """Whether the table was unavailable, so that an older copy is used."""
        return self.unavailable_since is not None

    @property
    def folder(self) -> str:
        """The prefix of its files."""
        return layout.reference_folder(self.reference_id, self.epoch, self.copy_id)

    def key_of(self, file: SnapshotFile) -> str:
        """The key of one of its files."""
        return layout.reference_file_key(self.reference_id, self.epoch, self.copy_id, file.name)


def require_each_once(pins: tuple[ReferencePin, ...]) -> None:
    """Refuse a reference table that is pinned twice.

    Raises:
        ValueError: Without naming the table.
    """
    if len({pin.reference_id for pin in pins}) != len(pins):
        raise ValueError("a reference table is pinned twice")

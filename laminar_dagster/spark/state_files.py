"""Reads, maps and writes the files of one state partition, and chooses those to compact.

Bytes from the store are always checked against the manifest's SHA-256.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from laminar_dagster.core import layout
from laminar_dagster.core.errors import RestoreFailed
from laminar_dagster.core.ids import CheckpointId, OperatorId, PartitionId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.arrow_files import file_bytes, file_table, sha256
from laminar_dagster.spark.state_cache import mapped_file, read_checked

MAX_FILES: Final = 8


class RowShape(Protocol):
    """The layout of a state's rows."""

    def read(self, table: pa.Table) -> pa.Table:
        """Convert stored rows to rows of this shape.

        Raises:
            ValueError: The rows cannot be converted.
        """
        ...


@dataclass(frozen=True, slots=True)
class StateFiles:
    """Reads and writes the state files of one partition."""

    store: ObjectStore
    attempt: CheckpointId
    operator: OperatorId
    partition: PartitionId

    def read(self, entry: PartitionSnapshotEntry, shape: RowShape) -> pa.Table:
        """Read a file as rows of a shape.

        Raises:
            ObjectMissing, ChecksumMismatch: It is missing, or damaged.
            RestoreFailed: It is not a state file of this shape.
        """
        key = self._key(entry)
        return self._shaped(key, file_table(read_checked(self.store, key, entry)), shape)

    def mapped(self, entry: PartitionSnapshotEntry, shape: RowShape) -> pa.Table:
        """As ``read``, from a memory-mapped local copy: only pages that are used are in memory."""
        key = self._key(entry)
        return self._shaped(key, mapped_file(self.store, key, entry), shape)

    def write(
        self, rows: pa.Table, bounds: tuple[int, int] | None, *, is_incremental: bool
    ) -> PartitionSnapshotEntry:
        """Write sorted rows as a new file.

        Args:
            rows: Rows of the shape's schema.
            bounds: The smallest and largest end among the rows; None if they have none.
            is_incremental: Whether the chain has older files below it.
        """
        build = layout.delta_path if is_incremental else layout.snapshot_path
        path = build(self.operator, self.partition)
        data = file_bytes(rows)
        self.store.put(layout.checkpoint_key(self.attempt, path), data)
        return PartitionSnapshotEntry(
            partition_id=self.partition,
            path=path,
            size_bytes=len(data),
            sha256=sha256(data),
            is_incremental=is_incremental,
            rows=rows.num_rows,
            event_time=bounds,
        )

    def _key(self, entry: PartitionSnapshotEntry) -> str:
        home = entry.origin.checkpoint_id if entry.origin else self.attempt
        return layout.checkpoint_key(home, entry.path)

    def _shaped(self, key: str, table: pa.Table, shape: RowShape) -> pa.Table:
        try:
            return shape.read(table)
        except ValueError as error:
            # pa.ArrowInvalid is a ValueError too.
            reason = f"{key} is no state of this shape: {error}"
            raise RestoreFailed(self.operator, self.partition, reason) from None


def how_many_to_fold(files: tuple[PartitionSnapshotEntry, ...], added_bytes: int) -> int:
    """Compaction: how many of the newest files to merge, up to the first larger than their sum.

    0 while the chain is short. So a byte is rewritten once for each doubling of the data on top of
    it, not in every epoch.
    """
    if len(files) < MAX_FILES:
        return 0
    total, count = added_bytes, 0
    for entry in reversed(files):
        if count and entry.size_bytes > total:
            break
        total += entry.size_bytes
        count += 1
    return count

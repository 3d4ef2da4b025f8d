"""The state of one partition of a window operator: a chain of immutable files.

An epoch adds one file with the partials of its own input and rewrites nothing. Old files are read
only when windows close, and only those that hold such windows. A file whose windows are all closed
leaves the chain. When the chain gets long, its newest files are folded into one; how many is chosen
by size, so that a large old file is rewritten only when as much has come on top of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import ChecksumMismatch, RestoreFailed
from laminar_dagster.core.ids import CheckpointId, PartitionId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.arrow_files import file_bytes, file_table, sha256
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.state_shape import StateShape

MAX_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class Closing:
    """Windows that end after ``previous`` and not after ``now`` close in this epoch."""

    previous: int | None
    now: int | None

    def slice_of(self, ends: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Which of sorted window ends close in this epoch: from the first, up to the second."""
        if self.now is None:
            return 0, 0
        first = 0 if self.previous is None else int(np.searchsorted(ends, self.previous, "right"))
        return first, int(np.searchsorted(ends, self.now, "right"))

    def has_closed(self, end: int) -> bool:
        """Whether a window is closed after this epoch."""
        return self.now is not None and end <= self.now


@dataclass(frozen=True, slots=True)
class StateChain:
    """The files of one partition, with the origin of each written down."""

    store: ObjectStore
    attempt: CheckpointId
    shape: StateShape
    partition: PartitionId
    files: tuple[PartitionSnapshotEntry, ...]

    def close(self, closing: Closing) -> tuple[list[pa.Table], StateChain]:
        """The stored rows of windows that close now, file by file; and the chain without them.

        A file is read only if a window in it closes. What stays open in it is written down, so
        that it is left alone until the next one does.
        """
        found, files = [], []
        for entry in self.files:
            if entry.event_time and closing.has_closed(entry.event_time[0]):
                table = self._read(entry)
                ends = table.column(END).to_numpy()
                first, last = closing.slice_of(ends)
                found.append(table.slice(first, last - first))
                if last < len(ends):
                    open_now = (int(ends[last]), entry.event_time[1])
                    files.append(structs.replace(entry, event_time=open_now))
            else:
                files.append(entry)
        return found, replace(self, files=tuple(files))

    def advance(self, added: pa.Table, closing: Closing) -> tuple[PartitionSnapshotEntry, ...]:
        """The chain after this epoch: with the new rows, folded if it is long.

        Args:
            added: Sorted partials of windows that stay open.
            closing: What closes now.
        """
        kept = self.files
        fold = _how_many_to_fold(kept, added.nbytes) if added.num_rows else 0
        if fold:
            older = [_open_rows(self._read(entry), closing) for entry in kept[-fold:]]
            added = self.shape.merge([*older, added])
            kept = kept[:-fold]
        if added.num_rows:
            kept = (*kept, self._write(added, is_incremental=bool(kept)))
        return tuple(
            structs.replace(entry, is_incremental=index > 0) for index, entry in enumerate(kept)
        )

    def open_rows(self, closing: Closing) -> pa.Table:
        """One row for each open window and key: the whole chain, read and merged."""
        return self.shape.merge([_open_rows(self._read(entry), closing) for entry in self.files])

    def _read(self, entry: PartitionSnapshotEntry) -> pa.Table:
        home = entry.origin.checkpoint_id if entry.origin else self.attempt
        key = layout.checkpoint_key(home, entry.path)
        data = self.store.read(key)
        digest = sha256(data)
        if len(data) != entry.size_bytes or digest != entry.sha256:
            raise ChecksumMismatch(key, entry.sha256, digest)
        try:
            return self.shape.read(file_table(data))
        except ValueError as error:
            # Arrow's own errors are among them.
            reason = f"{key} is no state of this shape: {error}"
            raise RestoreFailed(self.shape.operator, self.partition, reason) from None

    def _write(self, rows: pa.Table, *, is_incremental: bool) -> PartitionSnapshotEntry:
        build = layout.delta_path if is_incremental else layout.snapshot_path
        path = build(self.shape.operator, self.partition)
        data = file_bytes(rows.cast(self.shape.schema))
        self.store.put(layout.checkpoint_key(self.attempt, path), data)
        ends = rows.column(END)
        return PartitionSnapshotEntry(
            partition_id=self.partition,
            path=path,
            size_bytes=len(data),
            sha256=sha256(data),
            is_incremental=is_incremental,
            rows=rows.num_rows,
            event_time=(ends[0].as_py(), ends[-1].as_py()),
        )


def _how_many_to_fold(files: tuple[PartitionSnapshotEntry, ...], added_bytes: int) -> int:
    """None while the chain is short; then the newest files, up to the first that outweighs them.

    So every byte is rewritten once for each doubling of what lies on top of it, not in every epoch.
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


def _open_rows(table: pa.Table, closing: Closing) -> pa.Table:
    _, last = closing.slice_of(table.column(END).to_numpy())
    return table.slice(last)

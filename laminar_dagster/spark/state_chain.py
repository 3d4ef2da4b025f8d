"""The state of one partition of a window operator: a chain of immutable files.

An epoch adds one file with the partials of its own input and rewrites nothing. Old files are read
only when windows close, and only those that hold such windows. A file whose windows are all closed
leaves the chain. Compaction: when the chain gets long, its newest files are merged into one; how
many is chosen by size, so a large old file is rewritten only once as much data is on top of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.state_files import StateFiles, how_many_to_fold
from laminar_dagster.spark.state_shape import StateShape


@dataclass(frozen=True, slots=True)
class Closing:
    """The watermark before and after an epoch: windows that end in (previous, now] close in it."""

    previous: int | None
    now: int | None

    def slice_of(self, ends: npt.NDArray[np.int64]) -> tuple[int, int]:
        """The half-open index range of the sorted window ends that close in this epoch."""
        if self.now is None:
            return 0, 0
        first = 0 if self.previous is None else int(np.searchsorted(ends, self.previous, "right"))
        return first, int(np.searchsorted(ends, self.now, "right"))

    def has_closed(self, end: int) -> bool:
        """Whether a window with this end is closed after this epoch."""
        return self.now is not None and end <= self.now


@dataclass(frozen=True, slots=True)
class StateChain:
    """The files of one partition; each entry names the checkpoint that wrote it."""

    home: StateFiles
    shape: StateShape
    files: tuple[PartitionSnapshotEntry, ...]

    def close(self, closing: Closing) -> tuple[list[pa.Table], StateChain]:
        """The stored rows of windows that close now, file by file; and the chain without them.

        A file is read only if a window in it closes. Its entry then records the earliest end that
        is still open, so it is not read again until that window closes.
        """
        found, files = [], []
        for entry in self.files:
            if entry.event_time and closing.has_closed(entry.event_time[0]):
                table = self.home.read(entry, self.shape)
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
        """The chain after this epoch: with a file of the new rows, compacted if it is long.

        Args:
            added: Sorted partials of windows that stay open.
            closing: The windows that close in this epoch.
        """
        kept = self.files
        fold = how_many_to_fold(kept, added.nbytes) if added.num_rows else 0
        if fold:
            older = [
                _open_rows(self.home.read(entry, self.shape), closing) for entry in kept[-fold:]
            ]
            added = self.shape.merge([*older, added])
            kept = kept[:-fold]
        if added.num_rows:
            rows = added.cast(self.shape.schema)
            bounds = self.shape.bounds(rows)
            kept = (*kept, self.home.write(rows, bounds, is_incremental=bool(kept)))
        return tuple(
            structs.replace(entry, is_incremental=index > 0) for index, entry in enumerate(kept)
        )

    def open_rows(self, closing: Closing) -> pa.Table:
        """One row for each open window and key: the whole chain, read and merged."""
        return self.shape.merge(
            [_open_rows(self.home.read(entry, self.shape), closing) for entry in self.files]
        )


def _open_rows(table: pa.Table, closing: Closing) -> pa.Table:
    _, last = closing.slice_of(table.column(END).to_numpy())
    return table.slice(last)

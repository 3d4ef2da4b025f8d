"""The keyed state of one partition: a chain of immutable files, in which keys are looked up.

A file is sorted by hash and memory-mapped: a lookup is a binary search, and its cost hardly grows
with the size of the state. An epoch adds one file with the keys that it touched; the newest file
that holds a hash wins. Rows that have ended are filtered out by the watermark when they are read,
not rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.spark.columns import END, HASH
from laminar_dagster.spark.keyed_rows import is_among, once
from laminar_dagster.spark.state_chain import Closing
from laminar_dagster.spark.state_files import RowShape, StateFiles, how_many_to_fold

Hashes = npt.NDArray[np.int64]


class ChainShape(RowShape, Protocol):
    """The row layout of a state that is found by hash, and how rows of several files are merged."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of a state file."""
        ...

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge the rows of a chain's files, oldest first, sorted by hash."""
        ...

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of a file."""
        ...

    def alive(self, rows: pa.Table) -> pa.Table:
        """Rows without tombstones."""
        ...

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end among rows; None if no row has an end."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedChain:
    """The files of one partition; each entry names the checkpoint that wrote it."""

    home: StateFiles
    shape: ChainShape
    files: tuple[PartitionSnapshotEntry, ...]

    def rows_of(self, hashes: Hashes, closing: Closing) -> pa.Table:
        """The rows with the given hashes that had not ended when the epoch began."""
        found = [self.shape.schema.empty_table()]
        left = hashes
        for entry in reversed(self.files):
            if not len(left):
                break
            rows = matching(self.home.mapped(entry, self.shape), left)
            if rows.num_rows:
                found.append(rows)
                known = once(rows.column(HASH).to_numpy())
                left = left[~is_among(left, known)]
        rows = open_rows(pa.concat_tables(found), closing.previous)
        return self.shape.alive(rows)

    def ending(self, closing: Closing) -> tuple[Hashes, KeyedChain]:
        """The hashes with a row that may end in this epoch, and the chain with updated bounds.

        Reads only the end column, of files in which something may end. "May", because a newer file
        can hold a later end of the same row.
        """
        found: list[Hashes] = []
        files: list[PartitionSnapshotEntry] = []
        for entry in self.files:
            if not entry.event_time or not closing.has_closed(entry.event_time[0]):
                files.append(entry)
                continue
            assert closing.now is not None
            rows = self.home.mapped(entry, self.shape)
            ends = rows.column(END).to_numpy()
            is_open = ends > closing.now
            ended = ~is_open
            if closing.previous is not None:
                ended &= ends > closing.previous
            found.append(rows.column(HASH).filter(pa.array(ended)).to_numpy())
            if is_open.any():
                left = (int(ends[is_open].min()), entry.event_time[1])
                files.append(structs.replace(entry, event_time=left))
        hashes = once(np.concatenate(found)) if found else np.empty(0, np.int64)
        return hashes, replace(self, files=tuple(files))

    def without_ended(self, closing: Closing) -> KeyedChain:
        """The chain without files in which every row has ended, judged by their bounds alone."""
        kept = [
            entry
            for entry in self.files
            if not entry.event_time or not closing.has_closed(entry.event_time[1])
        ]
        return replace(self, files=tuple(kept))

    def advance(self, added: pa.Table, closing: Closing) -> tuple[PartitionSnapshotEntry, ...]:
        """The chain after this epoch: with a file of the touched keys, compacted if it is long.

        Args:
            added: All rows of the hashes that were touched.
            closing: The watermark before and after this epoch.
        """
        kept = self.files
        added = open_rows(added, closing.now)
        fold = how_many_to_fold(kept, added.nbytes) if added.num_rows else 0
        if fold:
            older = [self.home.read(entry, self.shape) for entry in kept[-fold:]]
            added = open_rows(self.shape.merge([*older, added]), closing.now)
            kept = kept[:-fold]
        if not kept:
            # The chain has no older files: drop tombstones.
            added = self.shape.alive(added)
        if added.num_rows:
            rows = self.shape.sorted(added).cast(self.shape.schema)
            bounds = self.shape.bounds(rows)
            kept = (*kept, self.home.write(rows, bounds, is_incremental=bool(kept)))
        return tuple(
            structs.replace(entry, is_incremental=index > 0) for index, entry in enumerate(kept)
        )

    def open_rows(self, closing: Closing) -> pa.Table:
        """All rows that have not ended: reads and merges the whole chain."""
        rows = self.shape.merge([self.home.read(entry, self.shape) for entry in self.files])
        return self.shape.alive(open_rows(rows, closing.now))


def open_rows(rows: pa.Table, mark: int | None) -> pa.Table:
    """The rows that end after a watermark, or never."""
    if mark is None:
        return rows
    return rows.filter(pc.fill_null(pc.greater(rows.column(END), mark), True))


def matching(rows: pa.Table, wanted: Hashes) -> pa.Table:
    """The rows of a file sorted by hash whose hash is in ``wanted``, which is sorted too."""
    found: list[pa.RecordBatch] = []
    for batch in rows.to_batches():
        stored = batch.column(HASH).to_numpy()
        # Search only for the hashes within this batch's range.
        mine = wanted[
            np.searchsorted(wanted, stored[0]) : np.searchsorted(wanted, stored[-1], "right")
        ]
        left, right = np.searchsorted(stored, mine), np.searchsorted(stored, mine, "right")
        counts = right - left
        total = int(counts.sum())
        if total:
            before = np.cumsum(counts) - counts
            places = np.repeat(left - before, counts) + np.arange(total)
            found.append(batch.take(pa.array(places)))
    return pa.Table.from_batches(found, rows.schema)

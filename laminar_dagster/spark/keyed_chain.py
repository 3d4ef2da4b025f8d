"""The keyed state of one partition: a chain of immutable files, in which keys are looked up.

A file is sorted by hash and memory-mapped: to look up a key is to search a sorted column, and costs
what is looked up, not what is kept. An epoch adds one file with the keys that it touched; the
newest file that holds a hash decides. What has ended is hidden by the watermark, and stays as it is
written.
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
    """What the rows of a state by hash look like, and what becomes of those of several files."""

    @property
    def schema(self) -> pa.Schema:
        """Of a file of state."""
        ...

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """What a chain of files says, sorted by hash."""
        ...

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of a file."""
        ...

    def alive(self, rows: pa.Table) -> pa.Table:
        """Rows without those that were taken back to the last one."""
        ...

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end among rows; None if they have none."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedChain:
    """The files of one partition, with the origin of each written down."""

    home: StateFiles
    shape: ChainShape
    files: tuple[PartitionSnapshotEntry, ...]

    def rows_of(self, hashes: Hashes, closing: Closing) -> pa.Table:
        """The rows of some hashes, sorted, that had not ended when the epoch began."""
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
        """The hashes of which a row may end in this epoch; and the chain that has noted it.

        One column of a file is looked at, and only if something in it may end. A row may have got
        a later end in a newer file.
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
        """The chain without files in which everything has ended. Nothing is read."""
        kept = [
            entry
            for entry in self.files
            if not entry.event_time or not closing.has_closed(entry.event_time[1])
        ]
        return replace(self, files=tuple(kept))

    def advance(self, added: pa.Table, closing: Closing) -> tuple[PartitionSnapshotEntry, ...]:
        """The chain after this epoch: with the rows of the keys that it touched, folded if long.

        Args:
            added: All rows of the hashes that were touched.
            closing: What ends now.
        """
        kept = self.files
        added = open_rows(added, closing.now)
        fold = how_many_to_fold(kept, added.nbytes) if added.num_rows else 0
        if fold:
            older = [self.home.read(entry, self.shape) for entry in kept[-fold:]]
            added = open_rows(self.shape.merge([*older, added]), closing.now)
            kept = kept[:-fold]
        if not kept:
            # Nothing lies below that they would have to hide.
            added = self.shape.alive(added)
        if added.num_rows:
            rows = self.shape.sorted(added).cast(self.shape.schema)
            bounds = self.shape.bounds(rows)
            kept = (*kept, self.home.write(rows, bounds, is_incremental=bool(kept)))
        return tuple(
            structs.replace(entry, is_incremental=index > 0) for index, entry in enumerate(kept)
        )

    def open_rows(self, closing: Closing) -> pa.Table:
        """Every row that has not ended: the whole chain, read and merged."""
        rows = self.shape.merge([self.home.read(entry, self.shape) for entry in self.files])
        return self.shape.alive(open_rows(rows, closing.now))


def open_rows(rows: pa.Table, mark: int | None) -> pa.Table:
    """Rows that end after a watermark, or never."""
    if mark is None:
        return rows
    return rows.filter(pc.fill_null(pc.greater(rows.column(END), mark), True))


def matching(rows: pa.Table, wanted: Hashes) -> pa.Table:
    """The rows of a sorted file that have one of some sorted hashes."""
    found: list[pa.RecordBatch] = []
    for batch in rows.to_batches():
        stored = batch.column(HASH).to_numpy()
        # Of the hashes only those that can be in this batch.
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

"""Joins rows with a reference table, on the executors: for ``mapInArrow``.

The rows stay in their partition and order, and every task reads the table: the files that the plan
has pinned, checked by their SHA-256 and memory-mapped. A shuffle would spread the rows of one
partition over tasks, but staged files are named after partitions. See decision 35.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.partial_step import ROWS_AT_ONCE, control_rows, count_records
from laminar_dagster.spark.state_cache import mapped_file

# Prefix of the columns that hold a row's join keys, in the order of `matches`; the step drops them.
KEY: Final = "_j"
# False: the row can have no partner, by a condition on its own columns. The step drops it.
CAN_MATCH: Final = "_can_match"
_LEFT: Final = "_l"
_RIGHT: Final = "_r"


@dataclass(frozen=True)
class PinnedTable:
    """A reference table, as a plan has pinned it.

    Attributes:
        schema: The columns to read, which may be fewer than the table has.
        files: The store key and the snapshot's entry of each file.
    """

    schema: pa.Schema
    files: tuple[tuple[str, SnapshotFile], ...]
    store: ObjectStore = field(repr=False)

    def rows(self) -> pa.Table:
        """All rows, in order.

        Raises:
            ObjectMissing, ChecksumMismatch: A file is missing, or damaged.
        """
        parts = [
            mapped_file(self.store, key, file).select(self.schema.names).cast(self.schema)
            for key, file in self.files
        ]
        return pa.concat_tables([self.schema.empty_table(), *parts])


@dataclass(frozen=True)
class PinnedRows:
    """Emits the rows of a table: for ``mapInArrow`` over a frame of one row."""

    table: PinnedTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the table, in order."""
        for batch in batches:
            if batch.num_rows:
                yield from self.table.rows().to_batches()


@dataclass(frozen=True)
class ReferenceStep:
    """Joins rows with a table.

    Input: ``_part``, ``_control``, ``_keep``, columns, keys ``_j0`` … and ``_can_match``.

    Attributes:
        operator: The operator that records are counted for; None where the rows are no records.
        matches: The columns of the table that keys are compared with, in the order of the keys.
        kinds: The type that each key and its column are cast to for the comparison.
        found: The columns of the table in the output, each with its name in ``schema``.
        schema: The output schema.
    """

    operator: str | None
    kind: Literal["inner", "left", "semi", "anti"]
    table: PinnedTable
    matches: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    found: tuple[tuple[str, str], ...]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join about ``ROWS_AT_ONCE`` rows at a time, to bound memory."""
        try:
            lookup = Lookup(self.table.rows(), self.matches, self.kinds)
        except LaminarError as error:
            yield control_rows([json.dumps(error.to_record())], 0, self.schema)
            return
        waiting: list[pa.RecordBatch] = []
        rows = sequence = 0
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROWS_AT_ONCE:
                yield from self._joined(waiting, sequence, lookup)
                waiting, rows = [], 0
                sequence += 1
        if waiting:
            yield from self._joined(waiting, sequence, lookup)

    def _joined(
        self, batches: list[pa.RecordBatch], sequence: int, lookup: Lookup
    ) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        controls = table.column(CONTROL).drop_null().to_pylist()
        records = table.filter(pc.is_null(table.column(CONTROL))) if controls else table
        keep = pc.fill_null(records.column(KEEP), False)
        keys = [records.column(f"{KEY}{number}") for number in range(len(self.matches))]
        can_match = pc.and_(keep, pc.fill_null(records.column(CAN_MATCH), False))
        left, right = lookup.pairs(keys, can_match)
        stays = self._staying(keep.to_numpy(zero_copy_only=False), left)
        if self.operator is not None and table.num_rows:
            part = table.column(PART)[0].as_py()
            controls.append(count_records(self.operator, part, sequence, pa.chunked_array([stays])))
        if controls:
            yield control_rows(controls, table.column(PART)[0].as_py(), self.schema)
        left, right = self._chosen(left, right, stays)
        if len(left):
            yield from self._rows(records, left, right, lookup).to_batches()

    def _staying(self, keep: np.ndarray, left: np.ndarray) -> np.ndarray:
        """A mask of the records that are in the output, once or several times."""
        has_partner = np.zeros(len(keep), np.bool_)
        has_partner[left] = True
        match self.kind:
            case "left":
                return keep
            case "anti":
                return keep & ~has_partner
            case "inner" | "semi":
                return has_partner

    def _chosen(
        self, left: np.ndarray, right: np.ndarray, stays: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Record and partner indices of the output rows, by record; -1 for no partner."""
        if self.kind == "inner":
            return left, right
        alone = stays.copy()
        if self.kind == "left":
            alone[left] = False
        places = np.flatnonzero(alone)
        if self.kind != "left":
            return places, np.full(len(places), -1, np.int64)
        both = np.concatenate([left, places])
        partners = np.concatenate([right, np.full(len(places), -1, np.int64)])
        order = np.argsort(both, kind="stable")
        return both[order], partners[order]

    def _rows(
        self, records: pa.Table, left: np.ndarray, right: np.ndarray, lookup: Lookup
    ) -> pa.Table:
        mine = records.take(pa.array(left))
        partners = pa.array(right, mask=right < 0)
        theirs = {name: lookup.table.column(column).take(partners) for column, name in self.found}
        columns = [
            theirs[each.name] if each.name in theirs else mine.column(each.name)
            for each in self.schema
        ]
        return pa.table(columns, names=self.schema.names).cast(self.schema)


class Lookup:
    """Finds the rows of a table by key."""

    def __init__(
        self, table: pa.Table, matches: tuple[str, ...], kinds: tuple[pa.DataType, ...]
    ) -> None:
        """Index a table by the columns ``matches``, compared as ``kinds``."""
        self.table = table
        self._kinds = kinds
        keys = {
            f"{KEY}{number}": table.column(name).cast(kind)
            for number, (name, kind) in enumerate(zip(matches, kinds, strict=True))
        }
        self._keys = pa.table({**keys, _RIGHT: np.arange(table.num_rows, dtype=np.int64)})

    def pairs(
        self, keys: list[pa.ChunkedArray], can_match: pa.ChunkedArray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Indices of rows and of their partners, sorted by both. A null key has no partner."""
        named = {
            f"{KEY}{number}": key.cast(kind)
            for number, (key, kind) in enumerate(zip(keys, self._kinds, strict=True))
        }
        wanted = pa.table({**named, _LEFT: np.arange(len(can_match), dtype=np.int64)})
        wanted = wanted.filter(can_match)
        # Without threads: every core has a task of its own already.
        found = wanted.join(self._keys, [*named], join_type="inner", use_threads=False)
        left = found.column(_LEFT).to_numpy()
        right = found.column(_RIGHT).to_numpy()
        order = np.lexsort((right, left))
        return left[order], right[order]

"""Encoded records in a buffer, and the search for those that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.columns import FAN_OUT, BadRows

Offsets = npt.NDArray[np.int64]

MAX_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Records:
    """Records, ordered by their position in the partition.

    Attributes:
        starts: Where each record begins in ``data``.
        ends: Where each record ends, including the newline of a line.
        positions: The position of each record in its partition, ascending.
        are_lines: Whether each record ends with a newline, which is not part of its value.
    """

    data: bytes
    starts: Offsets
    ends: Offsets
    positions: Offsets
    are_lines: bool = True

    def __len__(self) -> int:
        """The number of records."""
        return len(self.starts)

    def text(self, place: int) -> bytes:
        """One record, including the newline of a line."""
        return self.data[int(self.starts[place]) : int(self.ends[place])]

    def only(self, places: Offsets) -> Records:
        """The records at some places, ascending."""
        if len(places) == len(self):
            return self
        return replace(
            self,
            starts=self.starts[places],
            ends=self.ends[places],
            positions=self.positions[places],
        )

    def without(self, places: Offsets) -> Records:
        """The records but for those at some places."""
        return replace(
            self,
            starts=np.delete(self.starts, places),
            ends=np.delete(self.ends, places),
            positions=np.delete(self.positions, places),
        )

    def stretch(self, low: int, high: int) -> bytes | memoryview:
        """The bytes of the records [low, high), which need not be neighbours in the file."""
        starts, ends = self.starts[low:high], self.ends[low:high]
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        if not len(breaks):
            return memoryview(self.data)[int(starts[0]) : int(ends[-1])]
        firsts = starts[np.concatenate(([0], breaks + 1))].tolist()
        lasts = ends[np.concatenate((breaks, [len(ends) - 1]))].tolist()
        return b"".join(self.data[one:two] for one, two in zip(firsts, lasts, strict=True))

    def bad(self, place: int, reason: str) -> BadRecord:
        """The bad record at one place."""
        raw = self.text(place)
        if self.are_lines:
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        return BadRecord(int(self.positions[place]), raw, reason[:MAX_REASON])

    def bad_at(self, reasons: Mapping[int, str]) -> list[BadRecord]:
        """The bad records at some positions, in order."""
        places = np.searchsorted(self.positions, sorted(reasons)).tolist()
        return [self.bad(place, reasons[int(self.positions[place])]) for place in places]


# Decodes bytes that hold a number of records: into a batch with one row each, and the bad rows.
# Raises ``ValueError`` if a record is bad and it cannot say which.
Decode = Callable[["bytes | memoryview", int], tuple[pa.RecordBatch, BadRows]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Decoded rows with their positions, and the bad records.

    Attributes:
        schema_ids: The ids of the registry's schemas that the records were decoded with.
        skipped: How many records were skipped: they hold no row and are not bad.
    """

    rows: pa.RecordBatch
    positions: Offsets
    bad: list[BadRecord]
    schema_ids: frozenset[int] = frozenset()
    skipped: int = 0


def decode_records(
    records: Records, bad: list[BadRecord], schema: pa.Schema, decode: Decode
) -> Outcome:
    """Decode all records at once if that works, otherwise search for the bad ones by splitting.

    Whether a record is good must not depend on its neighbours: the caller has set aside records
    that could be taken for a part of another.

    Args:
        records: The records to decode.
        bad: The records that were set aside.
        schema: The declared columns.
        decode: Decodes a range of records.
    """
    batches: list[pa.RecordBatch] = []
    reasons: BadRows = {}
    stack = [(0, len(records))] if len(records) else []
    while stack:
        low, high = stack.pop()
        try:
            batch, blamed = decode(records.stretch(low, high), high - low)
        except (pa.ArrowException, ValueError) as error:
            if high - low > 1:
                cuts = [*range(low, high, max(1, (high - low) // FAN_OUT)), high]
                stack.extend(reversed(list(pairwise(cuts))))
                continue
            batch, blamed = _nulls(schema, 1), {0: _reason(error)}
        batches.append(batch)
        reasons.update({low + row: reason for row, reason in blamed.items()})
    return settle(records, _concat(batches, schema), reasons, bad, schema)


def settle(
    records: Records,
    rows: pa.RecordBatch,
    reasons: BadRows,
    bad: list[BadRecord],
    schema: pa.Schema,
) -> Outcome:
    """Separate rows from bad records, including rows with a null in a NOT NULL column.

    Args:
        records: The records that were decoded.
        rows: One row for each record, with the schema's columns; a bad record's may be null.
        reasons: Why a record is bad, by its place.
        bad: The records that were set aside before.
        schema: The declared columns.
    """
    for name in (each.name for each in schema if not each.nullable):
        column = rows.column(name)
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f"`{name}` must not be null")
    bad.extend(records.bad(place, reason) for place, reason in reasons.items())
    bad.sort(key=lambda each: each.position)
    positions = records.positions
    if reasons:
        keep = np.ones(len(records), np.bool_)
        keep[list(reasons)] = False
        rows, positions = rows.filter(pa.array(keep)), positions[keep]
    # The schema with NOT NULL columns fits only now, without the bad rows.
    return Outcome(pa.RecordBatch.from_arrays(rows.columns, schema=schema), positions, bad)


def merged(some: Outcome, others: Outcome) -> Outcome:
    """Merge the outcomes of disjoint records in order; at most one row a record."""
    positions = np.concatenate([some.positions, others.positions])
    order = np.argsort(positions)
    return Outcome(
        rows=pa.concat_batches([some.rows, others.rows]).take(pa.array(order)),
        positions=positions[order],
        bad=sorted([*some.bad, *others.bad], key=lambda each: each.position),
    )


def _concat(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else _nulls(schema, 0)


def _nulls(schema: pa.Schema, count: int) -> pa.RecordBatch:
    columns = [pa.nulls(count, each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _reason(error: Exception) -> str:
    text = str(error).removeprefix("JSON parse error: ").strip()
    return text.removesuffix(" in row 0").removesuffix(" in row 1") or type(error).__name__

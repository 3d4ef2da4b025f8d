"""Encoded records side by side, and the search for those that cannot be decoded."""

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
    """Records in the order in which they stand in their partition.

    Attributes:
        starts: Where each record begins in ``data``.
        ends: Where each ends; of a line, its newline included.
        positions: Where each stands in its partition, ascending.
        are_lines: Whether each ends with a newline, which is no part of it.
    """

    data: bytes
    starts: Offsets
    ends: Offsets
    positions: Offsets
    are_lines: bool = True

    def __len__(self) -> int:
        """How many there are."""
        return len(self.starts)

    def text(self, place: int) -> bytes:
        """One record; of a line, its newline included."""
        return self.data[int(self.starts[place]) : int(self.ends[place])]

    def only(self, places: Offsets) -> Records:
        """Some of them, named in order."""
        if len(places) == len(self):
            return self
        return replace(
            self,
            starts=self.starts[places],
            ends=self.ends[places],
            positions=self.positions[places],
        )

    def without(self, places: Offsets) -> Records:
        """All but some."""
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
        """Report one record."""
        raw = self.text(place)
        if self.are_lines:
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        return BadRecord(int(self.positions[place]), raw, reason[:MAX_REASON])

    def bad_at(self, reasons: Mapping[int, str]) -> list[BadRecord]:
        """Report the records at some positions, in order."""
        places = np.searchsorted(self.positions, sorted(reasons)).tolist()
        return [self.bad(place, reasons[int(self.positions[place])]) for place in places]


# Text and number of records into a batch of as many rows, and the rows of it that are bad. Raises
# ``ValueError`` if there is a bad one that it cannot name.
Decode = Callable[["bytes | memoryview", int], tuple[pa.RecordBatch, BadRows]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows, where each stands in its partition, and what is no row.

    Attributes:
        schema_ids: Of the registry's schemas by which they were decoded.
        skipped: How many records hold no row and are not bad.
    """

    rows: pa.RecordBatch
    positions: Offsets
    bad: list[BadRecord]
    schema_ids: frozenset[int] = frozenset()
    skipped: int = 0


def decode_records(
    records: Records, bad: list[BadRecord], schema: pa.Schema, decode: Decode
) -> Outcome:
    """Decode all at once if that works, and otherwise narrow down to the records to blame.

    Whether a record is good must not depend on its neighbours: ``decode`` is given only records
    of which none can be taken for a part of another.

    Args:
        records: What to decode.
        bad: What was set aside before.
        schema: The declared columns.
        decode: Decodes a stretch of records.
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
    """Part the rows from the records that are none: named ones, and those that lack a value.

    Args:
        records: What was decoded.
        rows: As many, of whatever names the schema has; what is bad may be null.
        reasons: Why a record is bad, by its place.
        bad: What was set aside before.
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
    # Only now nothing is null where it must not be.
    return Outcome(pa.RecordBatch.from_arrays(rows.columns, schema=schema), positions, bad)


def merged(some: Outcome, others: Outcome) -> Outcome:
    """The outcome of records of which each is in one of two, put in order; of one row at most."""
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

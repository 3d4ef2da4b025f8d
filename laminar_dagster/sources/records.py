"""The records of a block of text, and the search for those that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sources.columns import FAN_OUT, BadRows
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.framing import Block

Offsets = npt.NDArray[np.int64]

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
MAX_REASON: Final = 500

_BLANK: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a block, without blank ones.

    Attributes:
        base: Where ``data`` begins in the file.
        starts: Where each record begins in ``data``.
        ends: Where each ends, its newline included.
    """

    base: int
    data: bytes
    starts: Offsets
    ends: Offsets

    @classmethod
    def of(cls, block: Block) -> Records:
        """The records of a block. A byte order mark counts only where the file begins."""
        starts = np.concatenate(([0], block.ends[:-1])).astype(np.int64)
        if block.start == 0 and block.data.startswith(BYTE_ORDER_MARK):
            starts[0] = len(BYTE_ORDER_MARK)
        whole = cls(block.start, block.data, starts, block.ends)
        if not len(starts):
            return whole
        raw = np.frombuffer(block.data + b"\n", np.uint8)
        # Only a record that begins with white space can be blank.
        maybe = np.flatnonzero(raw[starts] <= ord(" "))
        blank = [place for place in maybe.tolist() if not whole.text(place).strip(_BLANK)]
        return whole.without(np.array(blank, np.int64)) if blank else whole

    def __len__(self) -> int:
        """How many there are."""
        return len(self.starts)

    def text(self, place: int) -> bytes:
        """One record, its newline included."""
        return self.data[int(self.starts[place]) : int(self.ends[place])]

    def without(self, places: Offsets) -> Records:
        """All but some."""
        return Records(
            self.base, self.data, np.delete(self.starts, places), np.delete(self.ends, places)
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
        raw = self.text(place).removesuffix(b"\n").removesuffix(b"\r")
        return BadRecord(self.base + int(self.starts[place]), raw, reason[:MAX_REASON])


# Text and number of records into a batch of as many rows, and the rows of it that are bad. Raises
# ``ValueError`` if there is a bad one that it cannot name.
Decode = Callable[["bytes | memoryview", int], tuple[pa.RecordBatch, BadRows]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows, where each stands in the file, and what is no row."""

    rows: pa.RecordBatch
    positions: Offsets
    bad: list[BadRecord]


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
    rows = _concat(batches, schema)
    for name in (each.name for each in schema if not each.nullable):
        column = rows.column(name)
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f"`{name}` must not be null")
    bad.extend(records.bad(place, reason) for place, reason in reasons.items())
    bad.sort(key=lambda each: each.position)
    positions = records.starts + records.base
    if reasons:
        keep = np.ones(len(records), np.bool_)
        keep[list(reasons)] = False
        rows, positions = rows.filter(pa.array(keep)), positions[keep]
    # Only now nothing is null where it must not be.
    return Outcome(pa.RecordBatch.from_arrays(rows.columns, schema=schema), positions, bad)


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


def not_utf8(records: Records) -> Offsets:
    """Which records are not UTF-8."""
    if records.data.isascii():
        return np.empty(0, np.int64)
    try:
        records.data.decode()
    except UnicodeDecodeError:
        places = [place for place in range(len(records)) if not _is_utf8(records.text(place))]
        return np.array(places, np.int64)
    return np.empty(0, np.int64)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True

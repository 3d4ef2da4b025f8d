"""Decodes many records at once: one cursor for each, all of them moved together.

A *lane* is a cursor at a value of one record. A reader takes lanes that all stand at the beginning
of a value of the same type, reads that value of every lane with a few operations on whole arrays,
and leaves the cursors behind it. Where only some records hold a value, the reader continues with a
selection of the lanes; where a record holds several, with more lanes than records.

Every lane knows where its record ends. A read beyond that is undone: the record is marked as bad,
the lane is moved to the record's end, and the value counts as zero. Such a lost lane does no harm:
later reads fail in the same way, and only the first reason is kept. So no reader needs to ask which
lanes are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

# Zeros before and behind the data, so that loading a word near its ends needs no bounds check.
PADDING: Final = 16
CUT_OFF: Final = "the bytes end within {}"


class Body:
    """The bytes of all records, padded, and an overlapping 8-byte word starting at every byte."""

    __slots__ = ("buffer", "raw", "words")

    def __init__(self, data: bytes) -> None:
        """Copy the data between the paddings: its first byte is then at ``PADDING``."""
        self.raw = np.zeros(len(data) + 2 * PADDING, np.uint8)
        self.raw[PADDING : PADDING + len(data)] = np.frombuffer(data, np.uint8)
        self.words: UInt64s = np.ndarray(
            (len(self.raw) - 7,), np.dtype("<u8"), self.raw.data, strides=(1,)
        )
        self.buffer = pa.py_buffer(self.raw)


class Blame:
    """The bad records, by place, each with a reason; only the first reason is kept."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        """Start without bad records."""
        self.reasons: dict[int, str] = {}

    def add(self, places: Sequence[int] | Int64s, reason: str) -> None:
        """Mark records as bad."""
        listed = places.tolist() if isinstance(places, np.ndarray) else places
        for place in listed:
            self.reasons.setdefault(place, reason)


class Lanes:
    """Cursors into one body, one a value.

    Attributes:
        at: The position of each lane.
        end: The end of each lane's record.
        owner: The place of each lane's record among those that are decoded together.
        depth: How many recursive types enclose the values.
    """

    __slots__ = ("at", "blame", "body", "depth", "end", "owner")

    def __init__(
        self, body: Body, at: Int64s, end: Int64s, owner: Int64s, blame: Blame, depth: int = 0
    ) -> None:
        """Create lanes at positions of the padded body."""
        self.body = body
        self.at = at
        self.end = end
        self.owner = owner
        self.blame = blame
        self.depth = depth

    def __len__(self) -> int:
        """The number of lanes."""
        return len(self.at)

    def select(self, places: Int64s) -> Lanes:
        """Some of the lanes, to be moved on their own."""
        at, end, owner = self.at[places], self.end[places], self.owner[places]
        return Lanes(self.body, at, end, owner, self.blame, self.depth)

    def put_back(self, places: Int64s, part: Lanes) -> None:
        """Move lanes to where their selection stands now."""
        self.at[places] = part.at

    def spread_out(self, counts: Int64s, starts: Int64s) -> Lanes:
        """One lane for each value that each lane holds, at the beginnings of the values."""
        end, owner = np.repeat(self.end, counts), np.repeat(self.owner, counts)
        return Lanes(self.body, starts, end, owner, self.blame, self.depth)

    def lose(self, places: Int64s, reason: str) -> None:
        """Mark records as bad and move their lanes to the end: nothing after can be read."""
        if len(places):
            self.blame.add(self.owner[places], reason)
            self.at[places] = self.end[places]

    def refuse(self, places: Int64s, reason: str) -> None:
        """Mark records as bad for one value; what follows it is still read."""
        if len(places):
            self.blame.add(self.owner[places], reason)

    def advance(self, sizes: int | Int64s, what: str) -> Int64s:
        """Skip bytes, and return where they begin; for a lane with too few, its end."""
        starts = self.at
        self.at = starts + sizes
        if self.keep_inside(what) is not None:
            # Lost lanes were moved back to their ends.
            starts = np.minimum(starts, self.at)
        return starts

    def keep_inside(self, what: str) -> Int64s | None:
        """Lose the lanes beyond their ends, and return their places; None if there are none."""
        beyond = self.at > self.end
        if not beyond.any():
            return None
        lost = np.flatnonzero(beyond)
        self.lose(lost, CUT_OFF.format(what))
        return lost

"""Many records walked at once: one cursor for each, all of them moved together.

A *lane* is one value that is being read, of one record. A reader takes lanes that all stand at
the beginning of a value of the same type, reads that value of every lane with a few operations on
whole arrays, and leaves the cursors behind it. Where only some records hold a value, the reader
goes on with a selection of the lanes; where a record holds many, with more lanes than records.

Every lane knows where its record ends. A read that would go beyond is undone: the record is blamed,
the lane is put at the record's end, and what was read counts as zero. Such a lane cannot do harm:
whatever is read of it later fails in the same way, and the reason that was found first stands. So
no reader needs to ask which lanes are still alive.
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

# So many bytes before and behind the data can be loaded: no load needs to look where it is.
PADDING: Final = 16
CUT_OFF: Final = "the bytes end within {}"


class Body:
    """The bytes of all records, padded, and the same bytes as words that begin at every byte."""

    __slots__ = ("buffer", "raw", "words")

    def __init__(self, data: bytes) -> None:
        """Copy the data between the paddings: place 0 of it is then at ``PADDING``."""
        self.raw = np.zeros(len(data) + 2 * PADDING, np.uint8)
        self.raw[PADDING : PADDING + len(data)] = np.frombuffer(data, np.uint8)
        self.words: UInt64s = np.ndarray(
            (len(self.raw) - 7,), np.dtype("<u8"), self.raw.data, strides=(1,)
        )
        self.buffer = pa.py_buffer(self.raw)


class Blame:
    """Which records are bad and why, by their place. The first reason stands."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        """Nobody is to blame yet."""
        self.reasons: dict[int, str] = {}

    def add(self, places: Sequence[int] | Int64s, reason: str) -> None:
        """Blame some records."""
        listed = places.tolist() if isinstance(places, np.ndarray) else places
        for place in listed:
            self.reasons.setdefault(place, reason)


class Lanes:
    """Cursors into one body.

    Attributes:
        at: Where each lane stands.
        end: Where its record ends.
        owner: The place of its record among those that are decoded together.
        depth: How many values of recursive types these lanes are within.
    """

    __slots__ = ("at", "blame", "body", "depth", "end", "owner")

    def __init__(
        self, body: Body, at: Int64s, end: Int64s, owner: Int64s, blame: Blame, depth: int = 0
    ) -> None:
        """Stand at some places of the padded body."""
        self.body = body
        self.at = at
        self.end = end
        self.owner = owner
        self.blame = blame
        self.depth = depth

    def __len__(self) -> int:
        """How many there are."""
        return len(self.at)

    def select(self, places: Int64s) -> Lanes:
        """Some of them, to be moved on their own."""
        at, end, owner = self.at[places], self.end[places], self.owner[places]
        return Lanes(self.body, at, end, owner, self.blame, self.depth)

    def put_back(self, places: Int64s, part: Lanes) -> None:
        """Stand where a selection stands now."""
        self.at[places] = part.at

    def spread_out(self, counts: Int64s, starts: Int64s) -> Lanes:
        """As many lanes for each as it holds values, at the beginnings of the values."""
        end, owner = np.repeat(self.end, counts), np.repeat(self.owner, counts)
        return Lanes(self.body, starts, end, owner, self.blame, self.depth)

    def lose(self, places: Int64s, reason: str) -> None:
        """Give up records of which nothing more can be read."""
        if len(places):
            self.blame.add(self.owner[places], reason)
            self.at[places] = self.end[places]

    def refuse(self, places: Int64s, reason: str) -> None:
        """Blame records for a value; what follows it can be read."""
        if len(places):
            self.blame.add(self.owner[places], reason)

    def advance(self, sizes: int | Int64s, what: str) -> Int64s:
        """Step over bytes, and return where they begin; of a lane that has too few, its end."""
        starts = self.at
        self.at = starts + sizes
        if self.keep_inside(what) is not None:
            # The lanes that were lost have moved back.
            starts = np.minimum(starts, self.at)
        return starts

    def keep_inside(self, what: str) -> Int64s | None:
        """Lose the lanes that went beyond their ends, and say which; None if all is well."""
        beyond = self.at > self.end
        if not beyond.any():
            return None
        lost = np.flatnonzero(beyond)
        self.lose(lost, CUT_OFF.format(what))
        return lost

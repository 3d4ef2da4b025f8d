"""Where records of a text file end.

``LineFraming``: a record is a line. ``QuotedFraming``: a record is a line of CSV whose quoted
fields may hold newlines (RFC 4180): it ends at the first newline with an even number of quotes
before it.

A quote that is never closed would swallow the rest of the file. So a quoted record may have at
most ``limit`` bytes; if it does not end within them, it ends with its first line, and the search
starts anew on the next. That depends on the file's bytes alone, never on where a range was cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from laminar_dagster.sources.file.directory import OpenFile

# Changing this cuts chunks elsewhere: the same split must always give the same chunks.
CHUNK_BYTES: Final = 4 * 1024 * 1024
SHOWN_BYTES: Final = 64 * 1024

Ends = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Complete records, contiguous in the file.

    Attributes:
        start: Where the first one begins in the file.
        data: Their bytes, newlines included.
        ends: Where each ends within ``data``; the last one is ``len(data)``.
    """

    start: int
    data: bytes
    ends: Ends

    @property
    def end(self) -> int:
        """Where the last record ends in the file."""
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class Oversize:
    """One record that is longer than allowed, of which only the beginning was kept."""

    start: int
    end: int
    head: bytes


class Framing(Protocol):
    """Finds the ends of records. Every scan begins at the start of a record."""

    def complete_end(self, file: OpenFile, start: int, enough: int | None = None) -> int:
        """The end of the last complete record; ``start`` if there is none.

        To save scanning, any record's end at or after ``enough`` may be returned instead.
        """
        ...

    def cut(
        self, file: OpenFile, start: int, end: int, max_bytes: int | None, max_records: int | None
    ) -> tuple[int, int]:
        """The last record's end within the limits, and how many records there are up to it.

        ``start`` if not even one record fits. Records are counted only if they are limited.
        """
        ...

    def first_end(self, file: OpenFile, start: int, end: int) -> int:
        """The end of the first record of [start, end), which are complete records."""
        ...

    def blocks(self, file: OpenFile, start: int, end: int) -> Iterator[Block | Oversize]:
        """The complete records of [start, end), about ``CHUNK_BYTES`` at a time."""
        ...


@dataclass(frozen=True, slots=True)
class LineFraming:
    """A record is a line. ``limit`` is the most bytes of a line that are taken into memory."""

    limit: int
    block: int = CHUNK_BYTES

    def complete_end(self, file: OpenFile, start: int, enough: int | None = None) -> int:
        """Scans backwards from the end of the file: reads little more than the torn last line."""
        stop = file.size
        while stop > start:
            begin = max(start, stop - self.block)
            found = file.read(begin, stop - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            stop = begin
        return start

    def cut(
        self, file: OpenFile, start: int, end: int, max_bytes: int | None, max_records: int | None
    ) -> tuple[int, int]:
        """Counts newlines, so blank lines use up the limit as well."""
        if max_bytes is not None and start + max_bytes < end:
            end = self._last_end(file, start, start + max_bytes)
        if max_records is None:
            return end, 0
        place, count = start, 0
        while place < end and count < max_records:
            data = file.read(place, min(self.block, end - place))
            found = data.count(b"\n")
            if count + found >= max_records:
                return place + int(newline_ends(data)[max_records - count - 1]), max_records
            count += found
            place += len(data)
        # A last record without a newline counts too.
        ended = place == start or file.read(place - 1, 1) == b"\n"
        return place, count if ended else count + 1

    def first_end(self, file: OpenFile, start: int, end: int) -> int:
        """The byte after the first newline."""
        place = start
        while place < end:
            data = file.read(place, min(self.block, end - place))
            found = data.find(b"\n")
            if found >= 0:
                return place + found + 1
            place += len(data)
        return end

    def blocks(self, file: OpenFile, start: int, end: int) -> Iterator[Block | Oversize]:
        """Cut at newlines; the last record may lack its own."""
        place = start
        while place < end:
            data = file.read(place, min(self.block, end - place))
            cut = len(data) if place + len(data) == end else data.rfind(b"\n") + 1
            if not cut:
                stop = self.first_end(file, place, end)
                if stop - place > self.limit:
                    yield Oversize(place, stop, data[:SHOWN_BYTES])
                    place = stop
                    continue
                data, cut = file.read(place, stop - place), stop - place
            data = data[:cut]
            yield from _without_oversize(Block(place, data, newline_ends(data)), self.limit)
            place += cut

    def _last_end(self, file: OpenFile, start: int, stop: int) -> int:
        seen = OpenFile(file.source_id, file.path, file.descriptor, stop, file.modified_ns)
        return self.complete_end(seen, start)


@dataclass(frozen=True, slots=True)
class QuotedFraming:
    """A record is a line of CSV, in which quoted fields may hold newlines."""

    limit: int
    block: int = CHUNK_BYTES

    def complete_end(self, file: OpenFile, start: int, enough: int | None = None) -> int:
        """Scans from ``start``: only there it is known that no quote is open."""
        end = start
        for block in self._frame(file, start, file.size, complete=False):
            end = block.end
            if enough is not None and end >= enough:
                break
        return end

    def cut(
        self, file: OpenFile, start: int, end: int, max_bytes: int | None, max_records: int | None
    ) -> tuple[int, int]:
        """Counts records, blank ones included."""
        last, count = start, 0
        stop = end if max_bytes is None else min(end, start + max_bytes)
        for block in self._frame(file, start, end, complete=True):
            ends = block.ends + block.start if isinstance(block, Block) else np.array([block.end])
            inside = ends[ends <= stop]
            if max_records is not None:
                inside = inside[: max_records - count]
            count += len(inside)
            if len(inside):
                last = int(inside[-1])
            if len(inside) < len(ends):
                break
        return last, count

    def first_end(self, file: OpenFile, start: int, end: int) -> int:
        """The end of the first record or block of records that ``_frame`` finds."""
        for block in self._frame(file, start, end, complete=True):
            return block.start + int(block.ends[0]) if isinstance(block, Block) else block.end
        return start

    def blocks(self, file: OpenFile, start: int, end: int) -> Iterator[Block | Oversize]:
        """Cut where no quote is open; the last record may lack its newline."""
        for block in self._frame(file, start, end, complete=True):
            if isinstance(block, Block):
                yield from _without_oversize(block, self.limit)
            else:
                yield block

    def _frame(
        self, file: OpenFile, start: int, end: int, *, complete: bool
    ) -> Iterator[Block | Oversize]:
        """The records of [start, end).

        With ``complete``, ``end`` is known to be the end of a record. What is left over before it
        is then a record whose quote is never closed, or one without a newline; otherwise it is the
        torn tail of a file that grows.
        """
        place = start
        while place < end:
            data = file.read(place, min(self.block, end - place))
            ends = self._ends(data)
            if not len(ends) and len(data) < min(self.limit, end - place):
                data = file.read(place, min(self.limit, end - place))
                ends = self._ends(data)
            if len(ends):
                data = data[: int(ends[-1])]
                yield Block(place, data, ends)
                place += len(data)
                continue
            if len(data) < self.limit and not complete:
                return
            newline = data.find(b"\n")
            if newline >= 0:
                yield Block(place, data[: newline + 1], np.array([newline + 1]))
                place += newline + 1
                continue
            stop = LineFraming(self.limit, self.block).first_end(file, place, end)
            if stop == end and not complete and file.read(end - 1, 1) != b"\n":
                return
            if stop - place <= self.limit:
                yield Block(place, data[: stop - place], np.array([stop - place]))
            else:
                yield Oversize(place, stop, data[:SHOWN_BYTES])
            place = stop

    def _ends(self, data: bytes) -> Ends:
        """The ends of the leading records of ``data``, up to the first one longer than allowed."""
        newlines = newline_ends(data) if data.endswith(b"\n") else newline_ends(data)[:-1]
        if b'"' in data:
            quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == ord('"'))
            newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        too_long = np.flatnonzero(np.diff(newlines, prepend=0) > self.limit)
        return newlines[: int(too_long[0])] if len(too_long) else newlines


def newline_ends(data: bytes) -> Ends:
    """The offset after each line; the last line ends with the data, with or without newline."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    return ends if data.endswith(b"\n") or not data else np.append(ends, len(data))


def _without_oversize(block: Block, limit: int) -> Iterator[Block | Oversize]:
    """Replace the records of a block that are longer than the limit by ``Oversize``."""
    begin = 0
    for place in np.flatnonzero(np.diff(block.ends, prepend=0) > limit).tolist():
        first = int(block.ends[place - 1]) if place else 0
        if first > begin:
            yield _part(block, begin, first)
        last = int(block.ends[place])
        head = block.data[first : min(last, first + SHOWN_BYTES)]
        yield Oversize(block.start + first, block.start + last, head)
        begin = last
    if begin == 0:
        yield block
    elif begin < len(block.data):
        yield _part(block, begin, len(block.data))


def _part(block: Block, begin: int, end: int) -> Block:
    inside = block.ends[(block.ends > begin) & (block.ends <= end)]
    return Block(block.start + begin, block.data[begin:end], inside - begin)

"""How far an epoch reads into each file, within its admission limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.directory import OpenFile
from laminar_dagster.sources.file.framing import Framing
from laminar_dagster.sources.file.parquet_rows import row_count


@dataclass(slots=True)
class Budget:
    """What is left of an epoch's limits, shared between the files that are still to be planned.

    At least one record is always admitted.

    Attributes:
        waiting: How many files with unread data have not got their share yet.
    """

    limits: Admission
    waiting: int = 1
    _bytes: int | None = field(init=False)
    _records: int | None = field(init=False)
    _untouched: bool = True
    _closed: bool = False

    def __post_init__(self) -> None:
        """Start with the full limits."""
        self._bytes = self.limits.max_bytes
        self._records = self.limits.max_records

    def enough(self, start: int) -> int | None:
        """An offset after which the file need not be scanned: its share ends before it."""
        if self._closed:
            return start + 1
        share = self._share(self._bytes)
        return None if share is None else start + share + 1

    def take(self, framing: Framing, file: OpenFile, start: int, available: int) -> int:
        """How far to read: to the end, or as far as the file's share of the limits goes."""
        if start == available:
            return start
        size, records = self._share(self._bytes), self._share(self._records)
        self.waiting = max(1, self.waiting - 1)
        if self._closed:
            return start
        end, count = framing.cut(file, start, available, size, records)
        if end == start:
            # A record larger than the share is admitted if it fits into what is left of the limit.
            end, count = framing.cut(file, start, available, self._bytes, 1)
        if end == start and self._untouched:
            end, count = framing.first_end(file, start, available), 1
        self._spend(end - start, count)
        return end

    def _share(self, left: int | None) -> int | None:
        """An equal part of what is left, rounded up; an unused part goes to the later files."""
        return None if left is None else -(-left // self.waiting)

    def take_whole(self, file: OpenFile, start: int, available: int) -> int:
        """How far to read a file that is taken whole or not at all (Parquet)."""
        if self._closed or start == available:
            return start
        size = available - start
        count = row_count(file) if self._records is not None else 0
        too_many = self._records is not None and count > self._records
        too_large = self._bytes is not None and size > self._bytes
        if (too_many or too_large) and not self._untouched:
            self._closed = True
            return start
        self._spend(size, count)
        return available

    def _spend(self, size: int, count: int) -> None:
        self._untouched = self._untouched and not size
        if self._bytes is not None:
            self._bytes = max(0, self._bytes - size)
        if self._records is not None:
            self._records = max(0, self._records - count)
        self._closed = self._bytes == 0 or self._records == 0

"""How much of which file an epoch takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.directory import OpenFile
from laminar_dagster.sources.framing import Framing
from laminar_dagster.sources.parquet_rows import row_count


@dataclass(slots=True)
class Budget:
    """What is left of an epoch's limits. The first record is always admitted."""

    limits: Admission
    _bytes: int | None = field(init=False)
    _records: int | None = field(init=False)
    _untouched: bool = True
    _closed: bool = False

    def __post_init__(self) -> None:
        """Start with everything."""
        self._bytes = self.limits.max_bytes
        self._records = self.limits.max_records

    def enough(self, start: int) -> int | None:
        """A place beyond which it does not matter how much there is."""
        if self._closed:
            return start + 1
        return None if self._bytes is None else start + self._bytes + 1

    def take(self, framing: Framing, file: OpenFile, start: int, available: int) -> int:
        """How far to read; to the end, or as far as the limits go, and then nothing after it."""
        if self._closed or start == available:
            return start
        end, count = framing.cut(file, start, available, self._bytes, self._records)
        if end == start and self._untouched:
            end, count = framing.first_end(file, start, available), 1
        self._spend(end - start, count)
        if end < available:
            self._closed = True
        return end

    def take_whole(self, file: OpenFile, start: int, available: int) -> int:
        """The same for a file that is taken whole or not at all."""
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

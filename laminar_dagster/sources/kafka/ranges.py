"""Reads a range of a partition, cut into chunks that depend on nothing but the data."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.sources.kafka.fetching import Fetcher
from laminar_dagster.sources.kafka.messages import (
    MessageBatch,
    Numbers,
    PartitionRange,
    join,
    place_of,
)


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The most that a chunk holds. A larger message is a chunk of its own.

    Attributes:
        records: The number of messages.
        size_bytes: The size of their values, and of keys and headers if they are wanted.
    """

    records: int = 20_000
    size_bytes: int = 8 * 1024 * 1024


DEFAULT_LIMITS: Final = ChunkLimits()


@dataclass(frozen=True, slots=True)
class Polling:
    """How the fetcher is polled, and for how long.

    Attributes:
        records: How many messages to ask for at once.
        seconds: How long to wait for them.
        stall_seconds: How long to go on without progress before giving up.
    """

    records: int = 1000
    seconds: float = 0.1
    stall_seconds: float = 60.0


DEFAULT_POLLING: Final = Polling()
# How many messages to ask for before anything is known of their size.
_FIRST_MESSAGES: Final = 16


class ChunkCutter:
    """Cuts batches into chunks, which do not depend on how the messages were batched."""

    def __init__(self, limits: ChunkLimits) -> None:
        """Start with an empty chunk."""
        self._limits = limits
        self._fitting = _FIRST_MESSAGES
        self._begin()

    @property
    def fitting(self) -> int:
        """About how many messages fill a chunk's bytes, going by the last batch.

        Asking for more at once would hold them in memory before they can be cut.
        """
        return self._fitting

    @property
    def room(self) -> int:
        """How many messages the chunk has room for."""
        return self._limits.records - self._records

    def add(self, batch: MessageBatch) -> Iterator[MessageBatch]:
        """Add messages, and yield the chunks that are full.

        By records a chunk is full at its limit; by bytes it is when the next message does not
        fit, so that it does not matter whether that message is in this batch.
        """
        self._seconds += batch.fetch_seconds
        ends = batch.ends()
        if len(batch):
            self._fitting = max(1, self._limits.size_bytes * len(batch) // max(1, int(ends[-1])))
        low, low_bytes = 0, 0
        while low < len(batch):
            left = self._limits.size_bytes - self._bytes
            fitting = int(np.searchsorted(ends, low_bytes + left, side="right"))
            high = min(fitting, low + self.room)
            if high <= low and self._records:
                yield self._cut()
                continue
            high = max(high, low + 1)
            self._parts.append(batch.slice(low, high))
            self._records += high - low
            self._bytes += int(ends[high - 1]) - low_bytes
            low, low_bytes = high, int(ends[high - 1])
            if not self.room:
                yield self._cut()

    def rest(self) -> Iterator[MessageBatch]:
        """The last chunk, if it is not empty."""
        if self._records:
            yield self._cut()

    def _begin(self) -> None:
        self._parts: list[MessageBatch] = []
        self._records = 0
        self._bytes = 0
        self._seconds = 0.0

    def _cut(self) -> MessageBatch:
        chunk = join(self._parts, self._seconds)
        self._begin()
        return chunk


def fetch_range(
    fetcher: Fetcher,
    wanted: PartitionRange,
    source_id: str,
    limits: ChunkLimits = DEFAULT_LIMITS,
    *,
    polling: Polling = DEFAULT_POLLING,
    stopped: Callable[[], bool] = lambda: False,
) -> Generator[MessageBatch]:
    """Every message of the range, in chunks. The fetcher is opened here, and closed in any case.

    The range ends by position: at a message beyond it, or the end of the partition. Its last
    offsets may hold no message, as with control records, aborted messages and compacted ones.

    Args:
        fetcher: Not open yet.
        wanted: A range that ends at or before the last stable offset, so that it is final.
        source_id: The source's name, for errors.
        limits: The limits of a chunk.
        polling: How to poll the fetcher.
        stopped: Called several times a second; true ends the read early and drops the rest.

    Raises:
        SourceUnavailable: Nothing arrived for too long.
        AuthFailed, RetentionExpired: The read cannot go on.
    """
    if wanted.start >= wanted.end:
        return
    cutter = ChunkCutter(limits)
    try:
        fetcher.open(wanted.topic, wanted.partition, wanted.start)
        position = reached = wanted.start
        waited = 0.0
        while position < wanted.end:
            if stopped():
                return
            most = min(polling.records, cutter.room, cutter.fitting, wanted.end - position)
            batch = fetcher.fetch(most, polling.seconds)
            _require_order(batch.offsets, position, wanted, source_id)
            inside = int(np.searchsorted(batch.offsets, wanted.end))
            yield from cutter.add(batch.slice(0, inside))
            position = fetcher.position()
            waited = waited + batch.fetch_seconds if fetcher.reached() == reached else 0.0
            reached = fetcher.reached()
            if waited > polling.stall_seconds:
                raise _stalled(fetcher, wanted, position, waited, source_id)
        yield from cutter.rest()
    finally:
        fetcher.close()


def _require_order(offsets: Numbers, position: int, wanted: PartitionRange, source_id: str) -> None:
    """Refuse messages that would be read twice.

    Raises:
        SourceUnavailable: The offsets do not ascend from the position.
    """
    if len(offsets) and (int(offsets[0]) < position or bool(np.any(np.diff(offsets) <= 0))):
        place = place_of(wanted.topic, wanted.partition)
        reason = f"{place}: messages came out of order after offset {position}"
        raise SourceUnavailable(source_id, reason)


def _stalled(
    fetcher: Fetcher, wanted: PartitionRange, position: int, waited: float, source_id: str
) -> SourceUnavailable:
    place = place_of(wanted.topic, wanted.partition)
    reason = f"{place}: nothing came for {waited:.0f} s at offset {position}, before {wanted.end}"
    if trouble := fetcher.trouble():
        reason += f"; the last complaint: {trouble}"
    return SourceUnavailable(source_id, reason)

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
    """How much is in a chunk at most. A larger message is a chunk alone.

    Attributes:
        records: Messages.
        size_bytes: Of their values, and of keys and headers if they are wanted.
    """

    records: int = 20_000
    size_bytes: int = 8 * 1024 * 1024


DEFAULT_LIMITS: Final = ChunkLimits()


@dataclass(frozen=True, slots=True)
class Polling:
    """How the client is asked, and for how long.

    Attributes:
        records: How many messages to ask for at once.
        seconds: How long to wait for them.
        stall_seconds: Of waiting in which nothing moves, after which to give up.
    """

    records: int = 1000
    seconds: float = 0.1
    stall_seconds: float = 60.0


DEFAULT_POLLING: Final = Polling()
# To ask for before anything is known of their size.
_FIRST_MESSAGES: Final = 16


class ChunkCutter:
    """Cuts batches of any size into chunks, the same ones however the batches were cut."""

    def __init__(self, limits: ChunkLimits) -> None:
        """Begin with an empty chunk."""
        self._limits = limits
        self._fitting = _FIRST_MESSAGES
        self._begin()

    @property
    def fitting(self) -> int:
        """How many messages are about a chunk by their bytes, going by the last ones.

        Who asks for more has them in memory before they can be cut.
        """
        return self._fitting

    @property
    def room(self) -> int:
        """How many messages the chunk has room for."""
        return self._limits.records - self._records

    def add(self, batch: MessageBatch) -> Iterator[MessageBatch]:
        """Take messages in, and hand out the chunks that are full.

        By records a chunk is full when it has them; by bytes it is when the next message does not
        fit, so that it does not matter whether that one is in this batch.
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
        """The last chunk, if there is anything in it."""
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

    The range ends by position: a message beyond it, or the end of the partition at or beyond it.
    Its last offsets may hold no message, as with markers of transactions, aborted messages and
    messages that were compacted away.

    Args:
        fetcher: Not open.
        wanted: Offsets that the broker had promised to be final: up to its last stable offset.
        source_id: For errors.
        limits: Where to cut.
        polling: How to ask.
        stopped: Asked several times a second whether to end early; the rest is dropped then.

    Raises:
        SourceUnavailable: Nothing came for too long.
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
    """Rather none than twice the same message.

    Raises:
        SourceUnavailable: The offsets do not ascend from the position on.
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

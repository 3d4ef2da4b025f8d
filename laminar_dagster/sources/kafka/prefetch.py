"""Fetches ahead in a thread, while earlier chunks are decoded."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Self
from weakref import WeakSet

from laminar_dagster.sources.kafka.backpressure import BackpressureController
from laminar_dagster.sources.kafka.fetching import Fetcher
from laminar_dagster.sources.kafka.messages import MessageBatch, PartitionRange, place_of
from laminar_dagster.sources.kafka.ranges import (
    DEFAULT_LIMITS,
    DEFAULT_POLLING,
    ChunkLimits,
    Polling,
    fetch_range,
)

_log = logging.getLogger(__name__)

DEFAULT_CAPACITY: Final = 32 * 1024 * 1024
_CLOSE_SECONDS: Final = 10.0


class Prefetcher(Iterator[MessageBatch]):
    """The chunks of a range, fetched ahead up to a number of bytes. A context manager.

    Only the thread uses the fetcher. When the buffer passes its high mark, the thread pauses the
    partition until the buffer has drained to the low mark; so at most the high mark and one chunk
    are held, besides what librdkafka itself fetches ahead. An error of the thread is raised where
    the chunk would have been.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        wanted: PartitionRange,
        source_id: str,
        limits: ChunkLimits = DEFAULT_LIMITS,
        *,
        pressure: BackpressureController | None = None,
        polling: Polling = DEFAULT_POLLING,
    ) -> None:
        """Start to fetch.

        Args:
            fetcher: Not open yet; the thread opens and closes it.
            wanted: The range to fetch.
            source_id: The source's name, for errors.
            limits: The limits of a chunk.
            pressure: How much to buffer; by default up to ``DEFAULT_CAPACITY`` bytes.
            polling: How to poll the fetcher.
        """
        self._fetcher = fetcher
        self._pressure = pressure or BackpressureController(DEFAULT_CAPACITY)
        self._changed = threading.Condition()
        self._ready: deque[MessageBatch] = deque()
        self._fill = 0
        self._told_pauses = 0
        self._told_errors = 0
        self._is_closing = False
        self._is_done = False
        self._error: BaseException | None = None
        self._chunks = fetch_range(
            fetcher,
            wanted,
            source_id,
            limits,
            polling=polling,
            stopped=lambda: self._is_closing,
        )
        self._thread = threading.Thread(
            target=self._run,
            name=f"fetch {place_of(wanted.topic, wanted.partition)}",
            # The process may exit without waiting for a broker.
            daemon=True,
        )
        _at_work.add(self)
        self._thread.start()

    @property
    def pauses(self) -> int:
        """How often the partition has been paused."""
        return self._pressure.pauses

    def __next__(self) -> MessageBatch:
        """Wait for the next chunk.

        Raises:
            StopIteration: The range was read, or the prefetcher is closed.
            LaminarError: The error that ended the thread.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._is_done or self._is_closing)
            if self._ready and not self._is_closing:
                chunk = self._ready.popleft()
                self._fill -= chunk.size_bytes
                pauses, self._told_pauses = self.pauses - self._told_pauses, self.pauses
                self._changed.notify_all()
                return replace(chunk, pauses=pauses)
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Stop fetching, and wait until the connections are closed; may be called twice."""
        with self._changed:
            self._is_closing = True
            self._ready.clear()
            self._fill = 0
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        _at_work.discard(self)
        if self._thread.is_alive():
            _log.warning("%s: it has not ended after %g s", self._thread.name, _CLOSE_SECONDS)

    def __enter__(self) -> Self:
        """Return it, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _run(self) -> None:
        try:
            with contextlib.closing(self._chunks) as chunks:
                for chunk in chunks:
                    self._put(chunk)
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _put(self, chunk: MessageBatch) -> None:
        errors = self._fetcher.passed_troubles()
        chunk = replace(chunk, errors=errors - self._told_errors)
        self._told_errors = errors
        with self._changed:
            if self._is_closing:
                return
            self._ready.append(chunk)
            self._fill += chunk.size_bytes
            self._changed.notify_all()
            is_full = self._pressure.decide(self._fill) == "pause"
        if is_full:
            self._fetcher.pause()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_closing or self._pressure.decide(self._fill) == "resume"
                )
                is_over = self._is_closing
            if not is_over:
                self._fetcher.resume()


# Close these at exit: a thread still in C++ when the interpreter ends crashes the process.
_at_work: WeakSet[Prefetcher] = WeakSet()


@atexit.register
def _close_all() -> None:
    for each in list(_at_work):
        each.close()

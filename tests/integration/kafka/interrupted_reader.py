"""Reads a partition over and over until it is interrupted, each time at another moment.

A process of its own, without coverage: the interrupt may come anywhere, and coverage that is
interrupted while it holds its lock never gives it back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from laminar_dagster.sources.kafka.fetching import choose_fetcher
from laminar_dagster.sources.kafka.messages import PartitionRange, Wanted
from laminar_dagster.sources.kafka.ranges import ChunkLimits, fetch_range
from tests.integration.kafka.reading import Kind, thread_count, wait_for

TURNS = 30

is_reading = False


def _interrupt(*_: object) -> None:
    global is_reading
    if is_reading:
        is_reading = False
        raise KeyboardInterrupt


@contextmanager
def _interrupts_every(seconds: float) -> Iterator[None]:
    """Signals until the end: one that comes between two reads is ignored, the next is not."""
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(seconds):
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _read_once(kind: Kind, bootstrap: str, wanted: PartitionRange) -> bool:
    """Whether an interrupt ended the read. It begins to count with the second chunk."""
    global is_reading
    fetcher = choose_fetcher(kind, {"bootstrap.servers": bootstrap}, Wanted(), "clicks")
    chunks = fetch_range(fetcher, wanted, "clicks", ChunkLimits(500))
    next(chunks)
    try:
        is_reading = True
        for _ in chunks:
            pass
        is_reading = False
    except KeyboardInterrupt:
        return True
    finally:
        chunks.close()
    return False


def main(kind: Kind, bootstrap: str, topic: str, count: int) -> None:
    """Print how many reads ended whole, once nothing of the clients is left."""
    signal.signal(signal.SIGUSR1, _interrupt)
    before, whole = thread_count(), 0
    for turn in range(1, TURNS + 1):
        with _interrupts_every(turn * 0.002):
            while not _read_once(kind, bootstrap, PartitionRange(topic, 0, 0, count)):
                whole += 1
    wait_for(lambda: thread_count() <= before, 5)
    sys.stdout.write(f"{TURNS} interrupted, {whole} whole\n")


if __name__ == "__main__":
    main(cast(Kind, sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""Reads a partition over and over and is interrupted each time, a moment later than before.

A process of its own, without coverage: the interrupt may come anywhere, and coverage that is
interrupted while it holds its lock never gives it back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import cast

from laminar_dagster.sources.kafka.fetching import choose_fetcher
from laminar_dagster.sources.kafka.messages import PartitionRange, Wanted
from laminar_dagster.sources.kafka.ranges import ChunkLimits, fetch_range
from tests.integration.kafka.reading import Kind, thread_count, wait_for

is_reading = False


def _interrupt(*_: object) -> None:
    if is_reading:
        raise KeyboardInterrupt


def main(kind: Kind, bootstrap: str, topic: str, count: int) -> None:
    """Print how often a read was interrupted, once nothing of the clients is left."""
    global is_reading
    signal.signal(signal.SIGUSR1, _interrupt)
    before, interrupted = thread_count(), 0
    for turn in range(30):
        timer = threading.Timer(turn * 0.002, os.kill, (os.getpid(), signal.SIGUSR1))
        fetcher = choose_fetcher(kind, {"bootstrap.servers": bootstrap}, Wanted(), "clicks")
        wanted = PartitionRange(topic, 0, 0, count)
        chunks = fetch_range(fetcher, wanted, "clicks", ChunkLimits(500))
        next(chunks)
        timer.start()
        try:
            is_reading = True
            for _ in chunks:
                pass
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            is_reading = False
        chunks.close()
        timer.join()
    wait_for(lambda: thread_count() <= before, 5)
    sys.stdout.write(f"{interrupted}\n")


if __name__ == "__main__":
    main(cast(Kind, sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))

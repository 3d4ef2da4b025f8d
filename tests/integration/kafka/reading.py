"""What the tests of both fetchers share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

from infra.load import Deadline
from laminar_dagster.sources.kafka.fetching import Fetcher
from laminar_dagster.sources.kafka.messages import MessageBatch, PartitionRange, Wanted
from laminar_dagster.sources.kafka.ranges import DEFAULT_LIMITS, ChunkLimits, Polling, fetch_range

Kind = Literal["fast", "portable"]
PATIENCE: Final = 30.0
VALUES_ALONE: Final = Wanted()
# Little is fetched ahead, so that a fault meets a reader that needs the broker.
SIPS: Final = {"queued.max.messages.kbytes": "64", "fetch.message.max.bytes": "20000"}


class MakeFetcher(Protocol):
    """Makes a fetcher for the plain broker, or for the one that the settings name."""

    def __call__(
        self, settings: Mapping[str, str] = {}, wanted: Wanted = VALUES_ALONE
    ) -> Fetcher: ...


def read(
    fetcher: Fetcher,
    topic: str,
    start: int,
    end: int,
    limits: ChunkLimits = DEFAULT_LIMITS,
    stall_timeout: float = PATIENCE,
) -> list[MessageBatch]:
    wanted = PartitionRange(topic, 0, start, end)
    return list(
        fetch_range(
            fetcher, wanted, "clicks", limits, polling=Polling(20_000, stall_seconds=stall_timeout)
        )
    )


def offsets_of(chunks: Sequence[MessageBatch]) -> list[int]:
    return [offset for chunk in chunks for offset in chunk.offsets.tolist()]


def values_of(chunks: Sequence[MessageBatch]) -> list[bytes | None]:
    return [value for chunk in chunks for value in chunk.values.to_pylist()]


def wait_for(what: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = Deadline(seconds)
    while not what():
        assert not deadline.is_over, "it did not happen"
        time.sleep(0.05)


def thread_count() -> int:
    """The threads of this process, librdkafka's among them."""
    return len(os.listdir("/proc/self/task"))


def number(place: int, size: int = 60) -> bytes:
    return b"%0*d" % (size, place)

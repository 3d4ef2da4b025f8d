from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.load import Deadline
from laminar_dagster.core.errors import RetentionExpired
from laminar_dagster.sources.kafka.backpressure import BackpressureController
from laminar_dagster.sources.kafka.messages import PartitionRange
from laminar_dagster.sources.kafka.prefetch import Prefetcher
from laminar_dagster.sources.kafka.ranges import ChunkLimits
from tests.unit.sources.kafka.scripted import ScriptedFetcher, Step, batch_of

COUNT = 60
WANTED = PartitionRange("clicks", 0, 0, COUNT)
# About 120 bytes each.
ONE_BY_ONE = ChunkLimits(records=1)


def messages(count: int = COUNT) -> list[Step]:
    return [batch_of([offset], [b"x" * 100]) for offset in range(count)]


def eventually(what: Callable[[], bool]) -> bool:
    deadline = Deadline(10)
    while not what() and not deadline.is_over:
        time.sleep(0.005)
    return what()


def test_chunks_come_in_order_and_the_thread_ends() -> None:
    fetcher = ScriptedFetcher(messages())
    with Prefetcher(fetcher, WANTED, "source", ONE_BY_ONE) as chunks:
        assert [int(each.offsets[0]) for each in chunks] == list(range(COUNT))
    assert fetcher.calls == ["open clicks[0] at 0", "close"]
    assert fetcher.threads.isdisjoint({threading.get_ident()})
    assert chunks.pauses == 0


def test_a_full_buffer_pauses_the_partition_until_it_is_half_empty() -> None:
    fetcher = ScriptedFetcher(messages())
    size = batch_of([0], [b"x" * 100]).size_bytes
    with Prefetcher(
        fetcher, WANTED, "source", ONE_BY_ONE, pressure=BackpressureController(10 * size)
    ) as chunks:
        assert eventually(lambda: "pause" in fetcher.calls)
        assert len(fetcher.asked) == 8
        # Down to half of the capacity, nothing happens.
        for _ in range(2):
            next(chunks)
        time.sleep(0.05)
        assert fetcher.calls[-1] == "pause"
        next(chunks)
        assert eventually(lambda: len(fetcher.asked) > 8)
        rest = [each.pauses for each in chunks]
    assert len(rest) == COUNT - 3
    paused, resumed = fetcher.calls.count("pause"), fetcher.calls.count("resume")
    assert paused == resumed == chunks.pauses > 1


def test_what_the_client_got_over_is_told_once() -> None:
    fetcher = ScriptedFetcher(messages())
    fetcher.passed = 3
    with Prefetcher(fetcher, WANTED, "source", ONE_BY_ONE) as chunks:
        assert [chunk.errors for chunk in chunks] == [3] + [0] * (COUNT - 1)


def test_a_chunk_larger_than_the_buffer_goes_through() -> None:
    fetcher = ScriptedFetcher(messages())
    with Prefetcher(
        fetcher, WANTED, "source", ONE_BY_ONE, pressure=BackpressureController(10)
    ) as chunks:
        found = list(chunks)
    assert len(found) == COUNT
    assert sum(each.pauses for each in found) >= COUNT - 1


def test_an_error_comes_after_what_was_read_before_it() -> None:
    fetcher = ScriptedFetcher([*messages(3), RetentionExpired("source", "offset 3", "9")])
    with Prefetcher(fetcher, WANTED, "source", ONE_BY_ONE) as chunks:
        for _ in range(3):
            next(chunks)
        with pytest.raises(RetentionExpired):
            next(chunks)
        with pytest.raises(StopIteration):
            next(chunks)
    assert not fetcher.is_open


@pytest.mark.parametrize("capacity", [10, 1_000_000])
def test_closing_early_ends_the_thread_wherever_it_waits(capacity: int) -> None:
    # With the small buffer it is paused, with the large one it waits for more.
    fetcher = ScriptedFetcher(messages(5))
    chunks = Prefetcher(
        fetcher, WANTED, "source", ONE_BY_ONE, pressure=BackpressureController(capacity)
    )
    next(chunks)
    began = time.monotonic()
    chunks.close()
    assert time.monotonic() - began < 1
    assert not fetcher.is_open
    assert not [each for each in threading.enumerate() if each.name == "fetch clicks[0]"]
    assert list(chunks) == []
    chunks.close()


def test_an_error_in_the_reader_closes_it() -> None:
    fetcher = ScriptedFetcher(messages())
    with (
        pytest.raises(ZeroDivisionError),
        Prefetcher(fetcher, WANTED, "source", ONE_BY_ONE) as chunks,
    ):
        for _ in chunks:
            raise ZeroDivisionError
    assert not fetcher.is_open


def test_a_process_that_ends_in_the_middle_ends_its_thread_first() -> None:
    code = """
from laminar_dagster.sources.kafka.prefetch import Prefetcher
from tests.unit.sources.kafka.test_prefetch import ONE_BY_ONE, WANTED, messages
from tests.unit.sources.kafka.scripted import ScriptedFetcher

class Telling(ScriptedFetcher):
    def close(self):
        super().close()
        print("closed", flush=True)

chunks = Prefetcher(Telling(messages(5)), WANTED, "source", ONE_BY_ONE)
next(chunks)
print("ending", flush=True)
"""
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.split()) == (0, ["ending", "closed"]), done.stderr

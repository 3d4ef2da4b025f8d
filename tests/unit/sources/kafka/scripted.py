"""A fetcher that delivers what a test tells it to, for what no broker does on command."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted, empty_batch

# A batch, the end of the partition at an offset, silence for some seconds, or an error.
Step = MessageBatch | int | float | LaminarError


def batch_of(offsets: Sequence[int], values: Sequence[bytes | None] | None = None) -> MessageBatch:
    return MessageBatch(
        np.array(offsets, np.int64),
        pa.array(values if values is not None else [b"value"] * len(offsets), pa.binary()),
    )


class ScriptedFetcher:
    """Plays its steps one by one, and then keeps silent."""

    def __init__(self, steps: Sequence[Step], *, complaint: str = "") -> None:
        self._steps = list(steps)
        self._complaint = complaint
        self.passed = 0
        self.calls: list[str] = []
        self.asked: list[int] = []
        self.threads: set[int] = set()
        self.is_open = False
        self._position = 0
        self._is_paused = False

    def open(self, topic: str, partition: int, start: int) -> None:
        self._called(f"open {topic}[{partition}] at {start}")
        self.is_open = True
        self._position = start

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        assert self.is_open
        assert not self._is_paused
        self.asked.append(most)
        step = self._steps.pop(0) if self._steps else timeout
        match step:
            case MessageBatch():
                self._position = int(step.offsets[-1]) + 1
                return step
            case LaminarError():
                raise step
            case int():
                self._position = step
                return empty_batch(Wanted())
            case _:
                return replace(empty_batch(Wanted()), fetch_seconds=step)

    def position(self) -> int:
        return self._position

    def reached(self) -> int:
        return self._position

    def trouble(self) -> str:
        return self._complaint

    def passed_troubles(self) -> int:
        return self.passed

    def pause(self) -> None:
        self._called("pause")
        self._is_paused = True

    def resume(self) -> None:
        self._called("resume")
        self._is_paused = False

    def close(self) -> None:
        self._called("close")
        self.is_open = False

    def _called(self, what: str) -> None:
        self.calls.append(what)
        self.threads.add(threading.get_ident())

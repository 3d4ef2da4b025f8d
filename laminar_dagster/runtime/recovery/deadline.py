"""Runs tasks in parallel, within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from laminar_dagster.core.errors import RecoveryTimeout
from laminar_dagster.core.ports import Clock

ResultT = TypeVar("ResultT")

# How many files are read at a time, and held in memory.
WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a recovery has to be over."""

    clock: Clock
    seconds: float
    begun: float

    @classmethod
    def from_now(cls, clock: Clock, seconds: float) -> Deadline:
        """A deadline so many seconds from now."""
        return cls(clock, seconds, clock.monotonic())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic() - self.begun

    def remaining(self) -> float:
        """Seconds that are left.

        Raises:
            RecoveryTimeout: No time is left.
        """
        left = self.seconds - self.elapsed
        if left <= 0:
            raise RecoveryTimeout(self.seconds)
        return left


@contextmanager
def beside(task: Callable[[], ResultT], deadline: Deadline) -> Iterator[Callable[[], ResultT]]:
    """Run a task in another thread during the block; yields a function that waits for its result.

    That function raises what the task raises, and ``RecoveryTimeout`` when it is not done in time.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="recovery-beside")
    future = pool.submit(task)

    def result() -> ResultT:
        while True:
            try:
                return future.result(timeout=deadline.remaining())
            except TimeoutError:
                if future.done():
                    raise

    try:
        yield result
    finally:
        # No waiting: a read that hangs ends by the store's own time limit.
        pool.shutdown(wait=False, cancel_futures=True)


def side_by_side(
    tasks: Iterable[Callable[[], ResultT]], deadline: Deadline, workers: int = WORKERS
) -> Iterator[ResultT]:
    """The results of tasks, in the order of completion. The first error cancels the rest.

    Raises:
        RecoveryTimeout: They are not done in time. Tasks that have not begun are cancelled.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="recovery")
    # A queue: ``concurrent.futures.wait`` would go through all pending futures for each result.
    done: SimpleQueue[Future[ResultT]] = SimpleQueue()
    in_time = True
    try:
        pending = {pool.submit(task) for task in tasks}
        for each in pending:
            each.add_done_callback(done.put)
        while pending:
            try:
                future = done.get(timeout=deadline.remaining())
            except Empty:
                continue
            pending.remove(future)
            yield future.result()
    except RecoveryTimeout:
        in_time = False
        raise
    finally:
        # After a timeout, no waiting: a read that hangs ends by the store's own time limit.
        pool.shutdown(wait=in_time, cancel_futures=True)

"""Work side by side, within a limit of time."""

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

# So many files are in memory at a time.
WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a recovery has to be over."""

    clock: Clock
    seconds: float
    begun: float

    @classmethod
    def from_now(cls, clock: Clock, seconds: float) -> Deadline:
        """So many seconds from now on."""
        return cls(clock, seconds, clock.monotonic())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic() - self.begun

    def remaining(self) -> float:
        """Seconds that are left.

        Raises:
            RecoveryTimeout: None are.
        """
        left = self.seconds - self.elapsed
        if left <= 0:
            raise RecoveryTimeout(self.seconds)
        return left


@contextmanager
def beside(task: Callable[[], ResultT], deadline: Deadline) -> Iterator[Callable[[], ResultT]]:
    """Do a task while something else is done; what comes back waits for its result.

    That raises what the task raises, and ``RecoveryTimeout`` when it is not done in time.
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
        # As below: nobody waits for a read that hangs.
        pool.shutdown(wait=False, cancel_futures=True)


def side_by_side(
    tasks: Iterable[Callable[[], ResultT]], deadline: Deadline, workers: int = WORKERS
) -> Iterator[ResultT]:
    """The results of tasks, as they come. The first error ends them all.

    Raises:
        RecoveryTimeout: They are not done in time. What has not begun is not begun any more.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="recovery")
    # A queue, since to wait for any of many futures looks at every one of them each time.
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
        # A read that hangs ends by the store's own time limit; nobody waits for it here.
        pool.shutdown(wait=in_time, cancel_futures=True)

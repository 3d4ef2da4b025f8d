"""Several workers on one store, advanced one store operation at a time.

A test decides which worker moves next and with which fault. So a state machine can walk through
any interleaving of two writers, with any fault, and replay it exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.testing.faulty_store import Fault, FaultyStore


class Worker:
    """Runs a function in a thread that pauses before each operation on ``store``."""

    def __init__(self, store: ObjectStore) -> None:
        """An idle worker on a ``FaultyStore`` around ``store``."""
        self._turn = threading.Semaphore(0)
        self._rest = threading.Semaphore(0)
        self._fault: Fault | None = None
        self.store = FaultyStore(store, self._pause)
        self.outcome: object = None
        self.is_done = False

    def start(self, work: Callable[[], object]) -> None:
        """Start the thread, and return when it pauses before its first operation."""
        threading.Thread(target=self._run, args=(work,), daemon=True).start()
        self._rest.acquire()

    def advance(self, fault: Fault | None = None) -> None:
        """Run the next operation, and return when the thread pauses before the one after it."""
        if self.is_done:
            return
        self._fault = fault
        self._turn.release()
        self._rest.acquire()

    def finish(self, fault: Fault | None = None) -> object:
        """Advance to the end; returns the function's result or exception."""
        while not self.is_done:
            self.advance(fault)
        return self.outcome

    def _pause(self) -> Fault | None:
        self._rest.release()
        self._turn.acquire()
        return self._fault

    def _run(self, work: Callable[[], object]) -> None:
        try:
            self.outcome = work()
        except BaseException as error:  # a crash must not take the test's process with it
            self.outcome = error
        self.is_done = True
        self._rest.release()

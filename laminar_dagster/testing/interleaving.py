"""Several workers on one store, advanced one store operation at a time.

A test decides who moves next and what becomes of the operation: it goes through, its reply is
lost, it never arrives, or the worker dies before or after it. So a state machine can walk through
any interleaving of two writers and replay it exactly.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from laminar_dagster.core.errors import LaminarError, StoreUnavailable, WriteOutcomeUnknown
from laminar_dagster.core.ports import ObjectInfo, ObjectStore, VersionedObject
from laminar_dagster.testing.crash import Crash

T = TypeVar("T")


class Fate(enum.Enum):
    """What becomes of an operation."""

    GO = "goes through"
    NOT_SENT = "never arrives"
    REPLY_LOST = "arrives, and its reply is lost"
    CRASH_BEFORE = "the worker dies before it"
    CRASH_AFTER = "the worker dies after it"
    STALE = "a listing answers as it would have some operations ago"


class Worker:
    """Runs a function in a thread that stops before every store operation."""

    def __init__(self) -> None:
        """A worker without work."""
        self._turn = threading.Semaphore(0)
        self._rest = threading.Semaphore(0)
        self._fate = Fate.GO
        self.outcome: object = None
        self.is_done = False

    def start(self, work: Callable[[], object]) -> None:
        """Begin, and come to rest before the first operation."""
        threading.Thread(target=self._run, args=(work,), daemon=True).start()
        self._rest.acquire()

    def advance(self, fate: Fate = Fate.GO) -> None:
        """Let the next operation happen, and come to rest before the one after it."""
        if self.is_done:
            return
        self._fate = fate
        self._turn.release()
        self._rest.acquire()

    def finish(self, fate: Fate = Fate.GO) -> object:
        """Advance to the end; returns what came of it."""
        while not self.is_done:
            self.advance(fate)
        return self.outcome

    def pause(self) -> Fate:
        """Called by the worker's store before each operation."""
        self._rest.release()
        self._turn.acquire()
        return self._fate

    def _run(self, work: Callable[[], object]) -> None:
        try:
            self.outcome = work()
        except BaseException as error:  # a crash must not take the test's process with it
            self.outcome = error
        self.is_done = True
        self._rest.release()


class WorkerStore:
    """A store as one worker sees it."""

    def __init__(
        self, inner: ObjectStore, worker: Worker, stale: Callable[[], ObjectStore]
    ) -> None:
        """Wrap a store; ``stale`` gives an earlier state of it, for listings."""
        self._inner = inner
        self._worker = worker
        self._stale = stale

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def probe(self) -> None:
        """Nothing to prove here."""

    def create(self, key: str, data: bytes) -> None:
        """A write with a condition: a lost reply leaves its outcome unknown."""
        self._write(key, lambda: self._inner.create(key, data))

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """A write with a condition: a lost reply leaves its outcome unknown."""
        self._write(key, lambda: self._inner.replace(key, data, expected))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """A plain write."""
        self._call(lambda: self._inner.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        """A plain write."""
        self._call(lambda: self._inner.put_file(key, path))

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """A read."""
        return self._call(lambda: self._inner.read(key, limit=limit))

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """A read."""
        return self._call(lambda: self._inner.read_versioned(key, limit=limit))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """A read."""
        return self._call(lambda: self._inner.read_range(key, start, length))

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """All reads as one operation."""
        wanted = list(keys)
        return iter(self._call(lambda: list(self._inner.read_many(wanted, limit=limit))))

    def download(self, key: str, path: Path) -> None:
        """A read."""
        self._call(lambda: self._inner.download(key, path))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """A listing, which may be stale and may name an object twice."""
        return iter(self._listing(lambda s: s.list(prefix, start_after=start_after)))

    def list_folders(self, prefix: str) -> Iterator[str]:
        """A listing, which may be stale and may name a folder twice."""
        return iter(self._listing(lambda s: s.list_folders(prefix)))

    def delete(self, keys: Sequence[str]) -> None:
        """A deletion."""
        self._call(lambda: self._inner.delete(keys))

    def sweep(self, before: datetime) -> int:
        """Passed through."""
        return self._inner.sweep(before)

    def _write(self, key: str, write: Callable[[], None]) -> None:
        fate = self._worker.pause()
        if fate is Fate.CRASH_BEFORE:
            raise Crash
        if fate is Fate.NOT_SENT:
            raise WriteOutcomeUnknown(key, "the request was lost")
        write()
        if fate is Fate.CRASH_AFTER:
            raise Crash
        if fate is Fate.REPLY_LOST:
            raise WriteOutcomeUnknown(key, "the reply was lost")

    def _call(self, call: Callable[[], T]) -> T:
        fate = self._worker.pause()
        if fate is Fate.CRASH_BEFORE:
            raise Crash
        if fate is Fate.NOT_SENT:
            raise StoreUnavailable(self.url, "the request was lost")
        result = call()
        if fate is Fate.CRASH_AFTER:
            raise Crash
        if fate is Fate.REPLY_LOST:
            raise StoreUnavailable(self.url, "the reply was lost")
        return result

    def _listing(self, call: Callable[[ObjectStore], Iterator[Any]]) -> list[Any]:
        fate = self._worker.pause()
        if fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
            raise Crash
        if fate in (Fate.NOT_SENT, Fate.REPLY_LOST):
            raise StoreUnavailable(self.url, "the reply was lost")
        if fate is Fate.STALE:
            return [entry for entry in call(self._stale()) for _ in range(2)]
        return list(call(self._inner))

"""Simulated crashes: an exception for tests in one process, and a real SIGKILL.

Both strike at named points of the package (``core.points``), or at a write to the store. A proof
names a member of ``Point``, so a point that is renamed or removed breaks it, and cannot silence it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.points import Point, unwatch, watch
from laminar_dagster.core.ports import ObjectInfo, ObjectStore, VersionedObject

_Result = TypeVar("_Result")


class Crash(BaseException):
    """Simulates ``kill -9`` within a test's process.

    A ``BaseException``, so that no ``except Exception`` of the code under test catches it.
    """


def kill_this_process() -> NoReturn:
    """End this process as ``kill -9`` does: no handler, no ``finally``, no flush runs after it."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # another thread of the process may be the one that takes the signal
        time.sleep(1)


def kill_at(point: Point, name: str | None = None) -> None:
    """Have this process die the next time that a thread of it is at a point.

    Whoever started the process has to look that it was killed: one that was never there lives on.

    Args:
        point: The point.
        name: Of the step, the sink or the file, as the point says; None: of any.
    """

    def strike(reached: Point, what: str) -> None:
        if reached is point and name in (None, what):
            kill_this_process()

    watch(strike)


class NeverReached(AssertionError):
    """What a test waited for did not happen: it has proved nothing."""


@contextmanager
def strike_at(act: Callable[[], object], point: Point, name: str | None = None) -> Iterator[None]:
    """Call a function the first time that a thread is at a point, inside the block.

    Args:
        act: Called in that thread, which goes on when it returns, and fails with what it raises.
        point: The point.
        name: Of the step, the sink or the file, as the point says; None: of any.

    Raises:
        NeverReached: The block ended, and no thread was there.
    """
    is_armed = True

    def strike(reached: Point, what: str) -> None:
        nonlocal is_armed
        if is_armed and reached is point and name in (None, what):
            is_armed = False
            act()

    watch(strike)
    try:
        yield
    finally:
        unwatch(strike)
    if is_armed:
        raise NeverReached(f"no thread was at {point.name}" + (f" of {name}" if name else ""))


@dataclass(frozen=True)
class KillingStore:
    """A store wrapper that sends SIGKILL to a process before or after its n-th matching write.

    It pickles, so it also counts the writes of executors, in whatever process they are.

    Attributes:
        inner: The store that holds the objects.
        pattern: Which writes count: a regular expression that is searched for in the key.
        nth: Which of the matching writes triggers the kill, from 1.
        when: Whether to kill before or after that write takes place.
        hits: An empty folder, the counter that all writing processes share.
        victim: The process to kill; the writing process is killed as well. None: only the
            writing process.
        with_group: Whether to kill the victim's process group: its JVM too, for a local Spark.
        spare_writer: Whether the writer lives on, like an executor that has lost its driver.
    """

    inner: ObjectStore
    pattern: str
    nth: int
    when: Literal["before", "after"]
    hits: Path
    victim: int | None
    with_group: bool = False
    spare_writer: bool = False

    @property
    def url(self) -> str:
        """The address of the inner store."""
        return self.inner.url

    def probe(self) -> None:
        """See ``ObjectStore.probe``."""
        self.inner.probe()

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        self._write(key, lambda: self.inner.create(key, data))

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        self._write(key, lambda: self.inner.replace(key, data, expected))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._write(key, lambda: self.inner.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        self._write(key, lambda: self.inner.put_file(key, path))

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        return self.inner.read(key, limit=limit)

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        return self.inner.read_versioned(key, limit=limit)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        return self.inner.read_range(key, start, length)

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``."""
        return self.inner.read_many(keys, limit=limit)

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        self.inner.download(key, path)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        return self.inner.list(prefix, start_after=start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``."""
        return self.inner.list_folders(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        self.inner.delete(keys)

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``."""
        return self.inner.sweep(before)

    def _write(self, key: str, act: Callable[[], _Result]) -> _Result:
        strikes = bool(re.search(self.pattern, key)) and self._number() == self.nth
        if strikes and self.when == "before":
            self._strike()
        result = act()
        if strikes:
            self._strike()
        return result

    def _number(self) -> int:
        """The number of matching writes so far, this one included."""
        for number in count(1):
            try:
                (self.hits / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            return number
        raise AssertionError("unreachable")

    def _strike(self) -> None:
        if self.victim is not None and self.with_group:
            os.killpg(self.victim, signal.SIGKILL)
        elif self.victim is not None and self.victim != os.getpid():
            os.kill(self.victim, signal.SIGKILL)
        if not self.spare_writer:
            kill_this_process()

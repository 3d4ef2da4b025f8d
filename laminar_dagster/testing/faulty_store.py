"""A store that injects faults on a schedule, to test that its callers recover."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from laminar_dagster.core.errors import LaminarError, StoreUnavailable, WriteOutcomeUnknown
from laminar_dagster.core.ports import ObjectInfo, ObjectStore, VersionedObject
from laminar_dagster.testing.crash import Crash

_Result = TypeVar("_Result")


class Fault(Enum):
    """A fault injected into one store operation."""

    CRASH_BEFORE = auto()
    """The process dies, and the operation never began."""

    CRASH_AFTER = auto()
    """The operation took effect, and the process dies before it learns of it."""

    AWAY = auto()
    """The store cannot be reached. Nothing happened, and the caller is told so."""

    LOST_REQUEST = auto()
    """Nothing happened. A conditional write reports that its outcome is unknown."""

    LOST_REPLY = auto()
    """It took effect. A conditional write reports that its outcome is unknown."""

    LATE_WRITE = auto()
    """As a lost request, but the write arrives after the next operation: it was under way."""

    STALE_LISTING = auto()
    """A listing shows the objects as they were before the last write or delete."""

    DUPLICATED_LISTING = auto()
    """A listing shows each object twice, as one does that is resumed from a page too early."""


class FaultyStore:
    """A store wrapper that injects faults. After a crash fault every call raises ``Crash``.

    Operations are counted from 1 in the order of their calls. A fault that makes no sense for its
    operation (a stale listing of a ``put``) does nothing. An operation whose fault leaves it
    without a reply raises ``WriteOutcomeUnknown`` from ``create`` and ``replace``, like an adapter
    that could not read the object back, and ``StoreUnavailable`` from all others.

    Attributes:
        operations: The name and the key or prefix of each operation so far, failed ones included.
    """

    def __init__(
        self, inner: ObjectStore, faults: Mapping[int, Fault] | Callable[[], Fault | None]
    ) -> None:
        """Wrap a store.

        Args:
            inner: The store that holds the objects. A test reads it to see what is durable.
            faults: The fault per operation number; or a function called before each operation.
        """
        self._inner = inner
        self._lock = threading.RLock()
        self._dead = False
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._fault: Fault | None = None
        if callable(faults):
            self._next_fault, self._keeps_history = faults, True
        else:
            schedule = dict(faults)
            self._next_fault = lambda: schedule.get(len(self.operations))
            self._keeps_history = Fault.STALE_LISTING in schedule.values()
        self._earlier = tuple(inner.list("")) if self._keeps_history else ()
        self.operations: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        """The address of the inner store."""
        return self._inner.url

    @property
    def is_dead(self) -> bool:
        """Whether a crash has happened."""
        return self._dead

    def land(self) -> None:
        """Apply all pending ``LATE_WRITE`` writes now, which can happen after their sender died."""
        with self._lock:
            self._land(lambda due: True)

    def probe(self) -> None:
        """See ``ObjectStore.probe``."""
        self._do("probe", "", self._inner.probe)

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        self._do("create", key, lambda: self._inner.create(key, data))

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        self._do("replace", key, lambda: self._inner.replace(key, data, expected))

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self._do("put", key, lambda: self._inner.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        self._do("put_file", key, lambda: self._inner.put_file(key, path))

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        return self._do("read", key, lambda: self._inner.read(key, limit=limit))

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        return self._do("read", key, lambda: self._inner.read_versioned(key, limit=limit))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        return self._do("read", key, lambda: self._inner.read_range(key, start, length))

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``. Counts as one operation."""
        wanted = [*keys]
        found = self._do("read", "", lambda: [*self._inner.read_many(wanted, limit=limit)])
        return iter(found)

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        self._do("download", key, lambda: self._inner.download(key, path))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``. Counts as one operation, when it is called."""

        def look() -> Sequence[ObjectInfo]:
            fault = self._fault
            found = (*self._inner.list(prefix, start_after=start_after),)
            if fault is Fault.STALE_LISTING:
                return [
                    info
                    for info in self._earlier
                    if info.key.startswith(prefix) and info.key > start_after
                ]
            return [info for info in found for _ in range(_times(fault))]

        return iter(self._do("list", prefix, look))

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``. Counts as one operation, when it is called."""

        def look() -> Sequence[str]:
            fault = self._fault
            found = (*self._inner.list_folders(prefix),)
            if fault is Fault.STALE_LISTING:
                below = [
                    info.key.removeprefix(prefix)
                    for info in self._earlier
                    if info.key.startswith(prefix)
                ]
                return [*dict.fromkeys(rest.split("/")[0] for rest in below if "/" in rest)]
            return [name for name in found for _ in range(_times(fault))]

        return iter(self._do("list_folders", prefix, look))

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        self._do("delete", ",".join(keys), lambda: self._inner.delete(keys))

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``."""
        return self._do("sweep", "", lambda: self._inner.sweep(before))

    # --- the schedule -----------------------------------------------------------------------------

    def _do(self, name: str, key: str, act: Callable[[], _Result]) -> _Result:
        with self._lock:
            # After a kill -9 no clean-up code runs, but after this exception it does: refuse it.
            if self._dead:
                raise Crash(f"{name} {key} in a process that is gone")
            self.operations.append((name, key))
            self._fault = self._next_fault()
            try:
                return self._suffer(self._fault, name, key, act)
            finally:
                now = len(self.operations)
                self._land(lambda due: due <= now)

    def _suffer(
        self, fault: Fault | None, name: str, key: str, act: Callable[[], _Result]
    ) -> _Result:
        writes = name in ("create", "replace", "put", "put_file")
        if fault is Fault.CRASH_BEFORE:
            self._dead = True
            raise Crash(f"before {name} {key}")
        if fault is Fault.AWAY:
            raise StoreUnavailable(self.url, "away on schedule")
        if fault is Fault.LOST_REQUEST or (fault is Fault.LATE_WRITE and not writes):
            raise self._no_reply(name, key)
        if fault is Fault.LATE_WRITE:
            self._late.append((len(self.operations) + 1, act))
            raise self._no_reply(name, key)
        if self._keeps_history and (writes or name in ("delete", "sweep")):
            self._earlier = tuple(self._inner.list(""))
        # The caller cannot tell a lost success from a lost error, so the error is swallowed too.
        unheard = fault is Fault.CRASH_AFTER or fault is Fault.LOST_REPLY
        with contextlib.suppress(*[LaminarError] if unheard else []):
            result = act()
        if fault is Fault.CRASH_AFTER:
            self._dead = True
            raise Crash(f"after {name} {key}")
        if fault is Fault.LOST_REPLY:
            raise self._no_reply(name, key)
        return result

    def _land(self, is_due: Callable[[int], bool]) -> None:
        due = [write for moment, write in self._late if is_due(moment)]
        self._late = [(moment, write) for moment, write in self._late if not is_due(moment)]
        for write in due:
            # The write's condition may no longer hold; its caller no longer waits for the reply.
            with contextlib.suppress(LaminarError):
                write()

    def _no_reply(self, name: str, key: str) -> LaminarError:
        if name in ("create", "replace"):
            return WriteOutcomeUnknown(key, "no reply, on schedule")
        return StoreUnavailable(self.url, "no reply, on schedule")


def _times(fault: Fault | None) -> int:
    return 2 if fault is Fault.DUPLICATED_LISTING else 1

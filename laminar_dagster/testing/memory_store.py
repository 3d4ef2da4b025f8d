"""An object store in memory, for tests."""

from __future__ import annotations

import builtins
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from laminar_dagster.core.errors import (
    InvalidName,
    LaminarError,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
)
from laminar_dagster.core.ports import ObjectInfo, VersionedObject


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    version: str
    modified: datetime


@dataclass(eq=False)
class _Place:
    """The objects that all stores of one name share."""

    name: str
    now: Callable[[], datetime] = _now
    objects: dict[str, _Stored] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    writes: int = 0


_PLACES: Final[weakref.WeakValueDictionary[str, _Place]] = weakref.WeakValueDictionary()
_PLACES_LOCK: Final = threading.Lock()


class MemoryStore:
    """Objects in a dictionary that every store of the same name shares, within one process.

    A pickled store opens the same place again, as long as some store on it is alive.
    """

    def __init__(self, name: str | None = None, *, now: Callable[[], datetime] = _now) -> None:
        """Open the place of a name, or a new one when no name is given.

        Args:
            name: The place. Stores of one name see the same objects.
            now: The clock for modification times; ignored if the place exists already.
        """
        name = name or uuid.uuid4().hex
        with _PLACES_LOCK:
            place = _PLACES.get(name)
            if place is None:
                place = _PLACES[name] = _Place(name, now)
        self._place = place

    @property
    def url(self) -> str:
        """The store's address, with the name of its place."""
        return f"memory://{self._place.name}"

    def __repr__(self) -> str:
        """The store's address."""
        return f"MemoryStore({self._place.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name only."""
        return MemoryStore, (self._place.name,)

    def probe(self) -> None:
        """See ``ObjectStore.probe``. Nothing to probe: one lock guards every condition."""

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        self.replace(key, data, None)

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        _check(key)
        with self._place.lock:
            found = self._place.objects.get(key)
            if found is not None and found.data == data:
                return
            if (None if found is None else found.version) != expected:
                raise ObjectExists(key)
            self.put(key, data)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        _check(key)
        place = self._place
        with place.lock:
            place.writes += 1
            place.objects[key] = _Stored(bytes(data), f"v{place.writes}", place.now())

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        self.put(key, path.read_bytes())

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        return self._get(key, limit).data

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        try:
            found = self._get(key, limit)
        except ObjectMissing:
            return None
        return VersionedObject(found.data, found.version)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of {length} bytes from {start}")
        return self._get(key, None).data[start : start + length]

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``."""
        for key in keys:
            try:
                yield key, self.read(key, limit=limit)
            except LaminarError as error:
                yield key, error

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        data = self.read(key)
        part = path.with_name(f".{uuid.uuid4().hex}.part")
        part.write_bytes(data)
        part.replace(path)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        _check(prefix, whole=False)
        with self._place.lock:
            # The port wants UTF-8 byte order, which sorting by code points gives.
            found = sorted(self._place.objects.items())
        return iter(
            [
                ObjectInfo(key, len(stored.data), stored.modified)
                for key, stored in found
                if key.startswith(prefix) and key > start_after
            ]
        )

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``."""
        if prefix and not prefix.endswith("/"):
            raise InvalidName("prefix", prefix, "must end with '/'")
        below = (info.key.removeprefix(prefix) for info in self.list(prefix))
        return iter(dict.fromkeys(rest.partition("/")[0] for rest in below if "/" in rest))

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        for key in keys:
            _check(key)
        with self._place.lock:
            for key in keys:
                self._place.objects.pop(key, None)

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``. A write to memory is never unfinished."""
        return 0

    def _get(self, key: str, limit: int | None) -> _Stored:
        _check(key)
        with self._place.lock:
            found = self._place.objects.get(key)
        if found is None:
            raise ObjectMissing(key)
        if limit is not None and len(found.data) > limit:
            reason = f"it has {len(found.data)} bytes, more than the {limit} allowed"
            raise MalformedDocument(key, reason)
        return found


def _check(key: str, *, whole: bool = True) -> None:
    """Refuse keys that real stores refuse, so that no test passes only in memory."""
    segments: builtins.list[str] = key.split("/")
    if not whole and not segments[-1]:
        segments.pop()
    empty = any(not segment or segment.startswith(".") for segment in segments)
    if empty or any(ord(character) < 0x20 or character in "\\\x7f" for character in key):
        raise InvalidName("key", key[:200], "could leave the store")

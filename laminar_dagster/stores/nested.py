"""A view of a store, limited to the keys below one folder."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from laminar_dagster.core.errors import LaminarError, ObjectExists, ObjectMissing
from laminar_dagster.core.ports import ObjectInfo, ObjectStore, VersionedObject
from laminar_dagster.stores.keys import check_folder


@dataclass(frozen=True, slots=True)
class NestedStore:
    """The objects of a store below a folder, with keys relative to that folder.

    Conditions, durability and retries are those of ``inner``.

    Attributes:
        folder: From ``core.layout``; ends with ``/``.
    """

    inner: ObjectStore
    folder: str

    def __post_init__(self) -> None:
        """Refuse what is no folder."""
        check_folder(self.folder)

    @property
    def url(self) -> str:
        """The address of the folder; query options of the inner store's address stay at its end."""
        base, mark, options = self.inner.url.partition("?")
        return f"{base.rstrip('/')}/{self.folder.rstrip('/')}{mark}{options}"

    def probe(self) -> None:
        """See ``ObjectStore.probe``."""
        self.inner.probe()

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        with _named(key):
            self.inner.create(self.folder + key, data)

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        with _named(key):
            self.inner.replace(self.folder + key, data, expected)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        self.inner.put(self.folder + key, data)

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        self.inner.put_file(self.folder + key, path)

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        with _named(key):
            return self.inner.read(self.folder + key, limit=limit)

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        return self.inner.read_versioned(self.folder + key, limit=limit)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        with _named(key):
            return self.inner.read_range(self.folder + key, start, length)

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``."""
        below = (self.folder + key for key in keys)
        for key, found in self.inner.read_many(below, limit=limit):
            rest = key.removeprefix(self.folder)
            yield rest, ObjectMissing(rest) if isinstance(found, ObjectMissing) else found

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        with _named(key):
            self.inner.download(self.folder + key, path)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        after = self.folder + start_after if start_after else ""
        for info in self.inner.list(self.folder + prefix, start_after=after):
            yield ObjectInfo(info.key.removeprefix(self.folder), info.size, info.modified)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``."""
        check_folder(prefix)
        return self.inner.list_folders(self.folder + prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        below: builtins.list[str] = [self.folder + key for key in keys]
        self.inner.delete(below)

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``. Does nothing: sweeping is left to ``inner``."""
        return 0


@contextlib.contextmanager
def _named(key: str) -> Iterator[None]:
    """Raise errors with the caller's relative key instead of the inner store's key."""
    try:
        yield
    except ObjectExists as error:
        raise ObjectExists(key) from error
    except ObjectMissing as error:
        raise ObjectMissing(key) from error

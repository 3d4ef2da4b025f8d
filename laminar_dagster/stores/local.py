"""An object store in a folder of a local disk."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import os
import shutil
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from laminar_dagster.clients.transience import is_forbidden, is_passing
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    InvalidName,
    LaminarError,
    MalformedDocument,
    ObjectMissing,
    ServiceFailed,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ports import ObjectInfo, VersionedObject
from laminar_dagster.stores.download import whole_file
from laminar_dagster.stores.durable_files import DurableFiles, SyncFailed
from laminar_dagster.stores.keys import (
    PROBE_FOLDER,
    check_folder,
    check_key,
    check_prefix,
    is_key,
)
from laminar_dagster.stores.probe import prove_conditions
from laminar_dagster.stores.read_back import Backoff, Conflict, Reply, Written, settle
from laminar_dagster.stores.side_by_side import read_each

_WORKERS: Final = 8


class LocalStore:
    """Objects as files below a root folder, for one machine or a POSIX file system it mounts.

    ``create`` is a hard link, ``replace`` a rename under a lock; both are durable on return. The
    version of an object is the SHA-256 of its content. No symbolic link below the root is
    followed. A root that is made here is readable by its own account only; see ``durable_files``.
    An ``OSError`` of the caller's own file in ``put_file`` and ``download`` is not translated.
    """

    def __init__(self, root: Path, *, lock_timeout: float = 30.0) -> None:
        """Open the store, and make its root if there is none.

        Args:
            root: The base of all keys. A relative one is taken from the current folder, now.
            lock_timeout: Seconds after which ``replace`` and ``delete`` give up waiting.

        Raises:
            InvalidConfig: The root is no folder.
            StoreUnavailable, AuthFailed, ServiceFailed: It cannot be made.
        """
        self._root = Path(os.path.abspath(root))
        self._files = DurableFiles(self._root, self.url, lock_timeout)
        self._backoff = Backoff()
        try:
            self._files.establish()
        except OSError as error:
            raise self._named(error, "its folder cannot be made: ") from error

    @property
    def url(self) -> str:
        """The root as a ``file:`` address."""
        return self._root.as_uri()

    def __repr__(self) -> str:
        """The store's address."""
        return f"LocalStore({self.url!r})"

    def exposure(self) -> str:
        """A warning about other accounts that can read the store; empty where none can."""
        mode = stat.S_IMODE(os.stat(self._root).st_mode)
        if not mode & 0o077:
            return ""
        who = "every account" if mode & 0o007 else "its group"
        return (
            f"{who} of this machine can get into its folder (mode {mode:04o}), and dead letters are"
            f" raw records; chmod -R go= {self._root}"
        )

    def probe(self) -> None:
        """See ``ObjectStore.probe``."""
        prove_conditions(self)

    # --- writing ----------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        self._write_if(key, data, None)

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        self._write_if(key, data, expected)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        path = self._path(key)
        with self._reported(), self._files.temporary(lambda file: file.write(data)) as temporary:
            self._files.put(temporary, path)

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        target = self._path(key)
        with open(path, "rb") as source, self._reported():
            fill = partial(shutil.copyfileobj, source)
            with self._files.temporary(fill) as temporary:
                self._files.put(temporary, target)

    def _write_if(self, key: str, data: bytes, expected: str | None) -> None:
        path = self._path(key)
        settle(
            key,
            data,
            expected,
            store=self.url,
            send=lambda: self._send(key, path, data, expected),
            read=lambda: self.read_versioned(key),
            backoff=self._backoff,
        )

    def _send(self, key: str, path: Path, data: bytes, expected: str | None) -> Reply:
        files = self._files
        try:
            with self._reported(), files.temporary(lambda file: file.write(data)) as temporary:
                if expected is None:
                    return Written() if files.name_new(temporary, path) else Conflict()
                with files.exclusive():
                    found = self.read_versioned(key)
                    if found is None or found.version != expected:
                        return Conflict()
                    files.name_over(temporary, path)
                    return Written()
        except SyncFailed as error:
            # Reading back would find the object, but not whether it survives a power cut.
            raise WriteOutcomeUnknown(key, f"it cannot be made durable: {error}") from error

    # --- reading ----------------------------------------------------------------------------------

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        file, size = self._open(key)
        with file:
            if limit is not None and size > limit:
                raise MalformedDocument(key, f"it has {size} bytes, more than the {limit} allowed")
            return file.read()

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        try:
            data = self.read(key, limit=limit)
        except ObjectMissing:
            return None
        return VersionedObject(data, hashlib.sha256(data).hexdigest())

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of {length} bytes from {start}")
        file, size = self._open(key)
        with file:
            file.seek(min(start, size))
            return file.read(length)

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``."""
        return read_each(partial(self.read, limit=limit), keys, workers=_WORKERS)

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        source, _ = self._open(key)
        with source, whole_file(path) as file:
            shutil.copyfileobj(source, file)

    def _open(self, key: str) -> tuple[BinaryIO, int]:
        """An object's file, which is the caller's to close, and its size."""
        path = self._path(key)
        with self._reported(key):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                    self._files.sync_above(path)
                return os.fdopen(descriptor, "rb"), status.st_size
            except BaseException:
                os.close(descriptor)
                raise

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        check_prefix(prefix)
        check_prefix(start_after)
        return self._walk(prefix[: prefix.rfind("/") + 1], prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``."""
        check_folder(prefix)
        return (
            name[:-1]
            for name in self._names(prefix)
            # A writer killed early, or one at work, may have a folder without an object.
            if name.endswith("/") and any(self._walk(prefix + name, "", ""))
        )

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """The objects below a folder, sorted by key; skips folders that hold no match."""
        for name in self._names(folder):
            key = folder + name
            if not key.startswith(prefix):
                continue
            if name.endswith("/"):
                if key > start_after or start_after.startswith(key):
                    yield from self._walk(key, prefix, start_after)
            elif key > start_after:
                with contextlib.suppress(ObjectMissing):
                    yield self._info(key)

    def _names(self, folder: str) -> builtins.list[str]:
        """The sorted entries of a folder; subfolders end with ``/``, so that keys come in order."""
        names: builtins.list[str] = []
        try:
            with os.scandir(self._inside(folder.rstrip("/"))) as entries:
                for entry in entries:
                    if not is_key(entry.name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        names.append(entry.name + "/")
                    elif entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            with self._reported():
                # Fails if the root is gone or a file, which would otherwise list as an empty store.
                os.stat(os.path.join(self._root, "."))
        except OSError as error:
            raise self._named(error) from error
        return sorted(names)

    def _info(self, key: str) -> ObjectInfo:
        path = self._root / key
        with self._reported(key):
            status = os.stat(path, follow_symlinks=False)
            if status.st_nlink > 1:
                self._files.sync_above(path)
        return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    # --- removing ---------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        paths = [self._path(key) for key in keys]
        with self._reported():
            for path in paths:
                # Without the lock, a concurrent replace could write the object again after this.
                with self._files.exclusive(), _already_gone():
                    os.unlink(path)
            for folder in {path.parent for path in paths}:
                self._files.remove_empty_folders(folder)

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``."""
        probes = [info.key for info in self.list(PROBE_FOLDER) if info.modified < before]
        self.delete(probes)
        with self._reported():
            # A full listing syncs every file that a killed writer linked but did not sync.
            swept = self._files.sweep(before.timestamp(), lambda: deque(self.list(""), maxlen=0))
        return len(probes) + swept

    # --- paths and errors -------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._inside(key)

    def _inside(self, name: str) -> Path:
        path = os.fspath(self._root)
        for segment in name.split("/"):
            path = os.path.join(path, segment)
            if os.path.islink(path):
                raise InvalidName("key", name[:200], "leads through a symbolic link")
        return Path(path)

    @contextlib.contextmanager
    def _reported(self, missing: str | None = None) -> Iterator[None]:
        """Turn ``OSError`` into the port's errors; ``missing`` is a key that may not exist."""
        try:
            yield
        except OSError as error:
            absent = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
            if missing is not None and absent and os.path.isdir(self._root):
                raise ObjectMissing(missing) from error
            raise self._named(error) from error

    def _named(self, error: OSError, doing: str = "") -> LaminarError:
        """The port's error for an ``OSError``; permanent unless it is known to be transient."""
        if (blocking := _file_above(self._root)) is not None:
            problem = f"{blocking} is a file, not a folder"
            return InvalidConfig(f"store {self.url}", problem, "name a folder, or a new one")
        reason = doing + (error.strerror or str(error))
        if is_forbidden(error):
            return AuthFailed(self.url, reason)
        if not doing and not os.path.isdir(self._root):
            return StoreUnavailable(self.url, "its folder is gone; is the disk mounted?")
        if is_passing(error):
            return StoreUnavailable(self.url, reason)
        return ServiceFailed(f"object store {self.url}", reason)


def _file_above(folder: Path) -> Path | None:
    """The file that stands at ``folder`` or at one of its parents; None if there is none."""
    for path in (folder, *folder.parents):
        if path.exists():
            return None if path.is_dir() else path
    return None


def _already_gone() -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)

"""Atomic file creation on a POSIX disk, where a reader can tell whether a file is durable.

A file is written and synced in ``.tmp`` first, and then linked to its name in one step. The
temporary name is removed only after the folders above the real name are synced. So a file with more
than one link is one whose writer may have died before that sync, and a reader that finds one syncs
its folders before relying on it. Otherwise it could act on a name that a power cut removes again.

A root folder created here is private to its account (0700): dead letters are raw records, and state
holds keys. An existing root keeps its mode, and everything created below it inherits that mode: to
share a store with a group, create its folder first. No mode is ever wider than the umask allows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from laminar_dagster.core.errors import ConditionsIgnored, InvalidName, StoreUnavailable

TEMPORARY: Final = ".tmp"
LOCK: Final = ".lock"

_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
# Each further try needs one more racing delete of the same folder.
_FOLDER_TRIES: Final = 100
_LOCK_PAUSE: Final = 0.01

_PRIVATE: Final = 0o700
_READ_AND_WRITE: Final = 0o666


@dataclass(slots=True)
class Temporary:
    """A file in ``.tmp``, deleted when its writer is done unless ``keep`` is set."""

    path: Path
    keep: bool = False


class SyncFailed(Exception):
    """A file got its name, but its folders could not be synced: a power cut may remove the name."""


class DurableFiles:
    """The files below a root folder. Raises ``OSError`` as the system does."""

    def __init__(self, root: Path, url: str, lock_timeout: float) -> None:
        """Touch nothing on disk; `establish` creates the root."""
        self.root = root
        self._url = url
        self._lock_timeout = lock_timeout
        self._temporary = root / TEMPORARY
        self._mode = _PRIVATE

    def establish(self) -> None:
        """Make the root, durably, and its folder for temporary files where that is allowed.

        Nothing makes them later: a root that vanished is a disk that was unmounted, and writing
        to the mount point would begin a second, empty store.
        """
        if self._temporary.is_dir():
            self._mode = self._mode_of_root()
            return
        # Only the root is private: folders above it may hold more than this store.
        self.root.mkdir(_PRIVATE, parents=True, exist_ok=True)
        self._mode = self._mode_of_root()
        # Sync also when the root existed: without ``.tmp``, the process that created the root was
        # perhaps killed before it synced.
        for folder in self.root.parents:
            with contextlib.suppress(PermissionError):
                sync_folder(folder)
        try:
            self._temporary.mkdir(self._mode, exist_ok=True)
        except OSError as error:
            # A read-only store can still be read.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise

    def _mode_of_root(self) -> int:
        # Owner bits are always set: a read-only root may be made writable later.
        return _PRIVATE | os.stat(self.root).st_mode & 0o777

    # --- writing ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def temporary(self, fill: Callable[[BinaryIO], object]) -> Iterator[Temporary]:
        """A temporary file, filled and synced; removed at the end."""
        temporary = Temporary(self._temporary / uuid.uuid4().hex)
        try:
            with open(temporary.path, "xb", opener=self._open_new) as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            if not temporary.keep:
                with contextlib.suppress(OSError):
                    os.unlink(temporary.path)

    def name_new(self, temporary: Temporary, path: Path) -> bool:
        """Link a file to a name that is free; False when it is taken.

        Raises:
            SyncFailed: It has the name, which a power cut may remove.
        """
        try:
            self._into(path, lambda: self._link(temporary.path, path))
        except FileExistsError:
            return False
        self._sync_or_keep(temporary, path)
        return True

    def name_over(self, temporary: Temporary, path: Path) -> None:
        """Rename a file over a name that is taken.

        Raises:
            SyncFailed: It has the name, which a power cut may undo.
        """
        second = temporary.path.with_suffix(".second")
        self._link(temporary.path, second)
        try:
            self._into(path, lambda: os.rename(second, path))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(second)
            raise
        self._sync_or_keep(temporary, path)

    def put(self, temporary: Temporary, path: Path) -> None:
        """Rename a file to a name that no other process reads or writes before this returns."""
        self._into(path, lambda: os.rename(temporary.path, path))
        self.sync_above(path)

    def sync_above(self, path: Path) -> None:
        """Sync all folders above a path, so that its name survives a power cut.

        Folders that exist already are synced as well: the process that created them may have been
        killed before its sync.
        """
        for folder in path.parents:
            try:
                sync_folder(folder)
            except FileNotFoundError:
                # Removed by a concurrent delete of the file, which removes empty folders too.
                if folder == self.root:
                    raise
            if folder == self.root:
                return

    def _sync_or_keep(self, temporary: Temporary, path: Path) -> None:
        try:
            self.sync_above(path)
        except OSError as error:
            temporary.keep = True
            raise SyncFailed(error.strerror or str(error)) from error

    def _link(self, source: Path, target: Path) -> None:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                reason = "its file system has no hard links"
                raise ConditionsIgnored(self._url, reason) from error
            raise

    def _into(self, path: Path, act: Callable[[], None]) -> None:
        """Call ``act``, and create missing folders; a concurrent delete may remove them again."""
        for _ in range(_FOLDER_TRIES):
            try:
                return act()
            except FileNotFoundError:
                self._make_folders(path.parent)
            except NotADirectoryError as error:
                raise _below_an_object(path, self.root) from error
        return act()

    def _make_folders(self, folder: Path) -> None:
        parts = folder.relative_to(self.root).parts
        for depth in range(len(parts)):
            try:
                os.mkdir(self.root.joinpath(*parts[: depth + 1]), self._mode)
            except FileExistsError:
                continue
            except FileNotFoundError:
                return
            except NotADirectoryError as error:
                raise _below_an_object(folder, self.root) from error

    # --- locking ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store's lock file exclusively. The system releases it if the process is killed.

        Raises:
            StoreUnavailable: Another holder keeps the lock beyond ``lock_timeout``.
        """
        deadline = time.monotonic() + self._lock_timeout
        while True:
            os.stat(self._temporary)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = os.open(self.root / LOCK, flags, self._lock_mode)
            try:
                self._keep_out_readers(lock)
                self._acquire(lock, deadline)
                # If the lock file was deleted meanwhile, other processes lock a new one: retry.
                if _is_same_file(lock, self.root / LOCK):
                    yield
                    return
            finally:
                # Closing is not enough while a forked child holds a copy of the descriptor.
                fcntl.flock(lock, fcntl.LOCK_UN)
                os.close(lock)

    @property
    def _lock_mode(self) -> int:
        """The lock file's mode: only accounts that may write to the store may open, so lock, it."""
        return 0o600 | sum(bits for bits in (0o060, 0o006) if self._mode & bits & 0o222)

    def _keep_out_readers(self, lock: int) -> None:
        """Narrow the mode of a lock file of an older version, which readers could open and lock."""
        status = os.fstat(lock)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & ~self._lock_mode:
            os.fchmod(lock, stat.S_IMODE(status.st_mode) & self._lock_mode)

    def _acquire(self, lock: int, deadline: float) -> None:
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    reason = f"another process has held {LOCK} for {self._lock_timeout:g} s"
                    raise StoreUnavailable(self._url, reason) from error
                time.sleep(_LOCK_PAUSE)

    def _open_new(self, path: str, flags: int) -> int:
        return os.open(path, flags, self._mode & _READ_AND_WRITE)

    # --- removing ---------------------------------------------------------------------------------

    def remove_empty_folders(self, folder: Path) -> None:
        """Remove a folder and its parents while they are empty; sync the first that stays.

        Never removes the root.
        """
        while folder != self.root:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                break
            folder = folder.parent
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(folder)

    def sweep(self, before: float, sync_found: Callable[[], object]) -> int:
        """Remove temporary files last written before a moment; returns how many.

        Args:
            before: The moment, in seconds since 1970.
            sync_found: Syncs the folders of all files that have more than one link.
        """
        old: list[Path] = []
        unsynced = False
        with os.scandir(self._temporary) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_mtime < before and entry.is_file(follow_symlinks=False):
                        old.append(Path(entry.path))
                        unsynced = unsynced or status.st_nlink > 1
        if unsynced:
            # The second link is what warns readers of a name that may not be durable yet.
            sync_found()
        removed = 0
        for path in old:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                removed += 1
        return removed


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _below_an_object(path: Path, root: Path) -> InvalidName:
    return InvalidName("key", str(path.relative_to(root))[:200], "lies below another object")

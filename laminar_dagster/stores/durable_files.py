"""Files that are whole as soon as they have a name, and known to be durable or known not to be.

A file is written and synced in ``.tmp`` first, and then linked to its name in one step. The
temporary name goes only after the folders above the real name are synced. So a file with more than
one link is one whose writer did not get that far, and whoever finds such a file syncs its folders
before relying on it. Otherwise a reader could act on a name that a power cut takes away again.

A root that is made here is its own account's alone: dead letters are raw records, and state holds
keys. One that was there keeps its mode, and what is made below it takes the same: whoever wants to
share a store with a group makes its folder first. Never is anything wider than the umask allows.
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
    """A file in ``.tmp`` that goes when its writer is done, unless it is told to stay."""

    path: Path
    keep: bool = False


class SyncFailed(Exception):
    """A file got its name, but the name could not be made durable."""


class DurableFiles:
    """The files below a root folder. Raises ``OSError`` as the system does."""

    def __init__(self, root: Path, url: str, lock_timeout: float) -> None:
        """Take the root as it is; `establish` makes it."""
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
        # Folders above may hold more than this store.
        self.root.mkdir(_PRIVATE, parents=True, exist_ok=True)
        self._mode = self._mode_of_root()
        # Also when the root was there: its maker may have been killed before it came to this, and
        # did not, then, get as far as the folder for temporary files.
        for folder in self.root.parents:
            with contextlib.suppress(PermissionError):
                sync_folder(folder)
        try:
            self._temporary.mkdir(self._mode, exist_ok=True)
        except OSError as error:
            # A store that may only be read is a store all the same.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise

    def _mode_of_root(self) -> int:
        # What its own account may not write to today, it may write to when that is mended.
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
        """Give a file a name that is free; False when it is taken.

        Raises:
            SyncFailed: It has the name, perhaps not for ever.
        """
        try:
            self._into(path, lambda: self._link(temporary.path, path))
        except FileExistsError:
            return False
        self._sync_or_keep(temporary, path)
        return True

    def name_over(self, temporary: Temporary, path: Path) -> None:
        """Give a file a name that is taken.

        Raises:
            SyncFailed: It has the name, perhaps not for ever.
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
        """Give a file a name that nobody else uses or reads before this returns."""
        self._into(path, lambda: os.rename(temporary.path, path))
        self.sync_above(path)

    def sync_above(self, path: Path) -> None:
        """Make a name durable, and those of all folders above it.

        Folders that exist already are synced as well: their maker may have been killed before it
        came to that.
        """
        for folder in path.parents:
            try:
                sync_folder(folder)
            except FileNotFoundError:
                # Emptied and removed since, by somebody who deleted the file.
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
        """Act on a path whose folders may be missing, or be removed while they are made."""
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

    # --- one at a time ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep every other process and thread out. A killed process lets go by itself.

        Raises:
            StoreUnavailable: Somebody else holds the lock for too long.
        """
        deadline = time.monotonic() + self._lock_timeout
        while True:
            os.stat(self._temporary)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            lock = os.open(self.root / LOCK, flags, self._lock_mode)
            try:
                self._keep_out_readers(lock)
                self._acquire(lock, deadline)
                # Somebody may have tidied the file away: then others lock another one.
                if _is_same_file(lock, self.root / LOCK):
                    yield
                    return
            finally:
                # Closing is not enough while a forked child holds a copy of the descriptor.
                fcntl.flock(lock, fcntl.LOCK_UN)
                os.close(lock)

    @property
    def _lock_mode(self) -> int:
        """Who may open a file may hold its lock: only who may write to the store."""
        return 0o600 | sum(bits for bits in (0o060, 0o006) if self._mode & bits & 0o222)

    def _keep_out_readers(self, lock: int) -> None:
        """A lock of an older version could be opened, and held, by whoever may read."""
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
        """Remove a folder and those above it as far as they are empty; sync the first that stays.

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
            sync_found: Syncs the names of all files that have more than one.
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

"""A keeper's folder on disk, by which other processes find the keeper, or find that it is dead.

::

    <instance>/laminar_warm/<key>/
        start.lock    held by a launcher that looks for the keeper or starts it
        keeper.lock   held by the keeper as long as it lives
        worker.lock   held by the worker as long as it lives
        record.json   where the keeper listens, its worker, and the runs it has answered for
        socket        unless the path is too long for a socket
        log           what keeper and worker print

The kernel frees a lock when its holder ends, in whatever way. A record without a held keeper.lock
is that of a killed keeper, whose runs have to be reported.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

_FOLDER_NAME: Final = "laminar_warm"
_MAX_SOCKET_PATH_BYTES: Final = 100
_MAX_LOG_BYTES: Final = 16 * 1024 * 1024
_POLL_SECONDS: Final = 0.02


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a keeper, written for launchers to read.

    Attributes:
        keeper_pid: The process of the keeper.
        worker_pid: The process of its worker, or 0.
        socket: The socket where it listens.
        runs: The runs it has accepted and not yet ended, in order.
    """

    keeper_pid: int
    worker_pid: int
    socket: str
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeeperFolder:
    """The files of one keeper: paths, and reading and writing them."""

    path: Path

    @classmethod
    def of(cls, instance_root: Path, key: str) -> "KeeperFolder":
        """The folder of the keeper with this key, created for the user alone."""
        for path in (instance_root / _FOLDER_NAME, instance_root / _FOLDER_NAME / key):
            _make_private(path)
        return cls(instance_root / _FOLDER_NAME / key)

    @classmethod
    def all(cls, instance_root: Path) -> "tuple[KeeperFolder, ...]":
        """Every keeper that this instance has ever had."""
        try:
            names = sorted(os.listdir(instance_root / _FOLDER_NAME))
        except FileNotFoundError:
            return ()
        return tuple(cls(instance_root / _FOLDER_NAME / name) for name in names)

    @property
    def start_lock(self) -> Path:
        """Held by a launcher that looks for the keeper or starts it."""
        return self.path / "start.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held by the keeper as long as it lives."""
        return self.path / "keeper.lock"

    @property
    def worker_lock(self) -> Path:
        """Held by the worker as long as it lives."""
        return self.path / "worker.lock"

    @property
    def log(self) -> Path:
        """What keeper and worker print."""
        return self.path / "log"

    def choose_socket(self) -> Path:
        """The socket's path: in this folder, or elsewhere if that path is too long for a socket."""
        here = self.path / "socket"
        if len(os.fsencode(here)) <= _MAX_SOCKET_PATH_BYTES:
            return here
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        shared = base / f"laminar-{os.getuid()}"
        _make_private(shared)
        return shared / hashlib.sha256(os.fsencode(self.path)).hexdigest()[:24]

    def record(self) -> Record | None:
        """The keeper's record, or None."""
        try:
            return msgspec.json.decode((self.path / "record.json").read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write(self, record: Record) -> None:
        """Replace the record atomically."""
        draft = self.path / "record.draft"
        draft.write_bytes(msgspec.json.encode(record))
        draft.replace(self.path / "record.json")

    def forget(self) -> None:
        """Remove the record: no runs are left to report."""
        (self.path / "record.json").unlink(missing_ok=True)

    def trim_log(self) -> None:
        """Copy a long log aside and truncate it; its writers append, so they go on."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _MAX_LOG_BYTES:
                shutil.copyfile(self.log, self.log.with_name("log.1"))
                os.truncate(self.log, 0)


@contextlib.contextmanager
def hold(lock: Path, seconds: float) -> Iterator[None]:
    """Hold a lock.

    Raises:
        TimeoutError: Another process held it for so long.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{lock} was held by another process for {seconds:g} s")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def wait_until_free(lock: Path, seconds: float) -> bool:
    """Wait for the holder of a lock to end; return whether it did."""
    deadline = time.monotonic() + seconds
    while is_held(lock):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_private(path: Path) -> None:
    """Create a folder for this user alone, or refuse one that is not.

    Raises:
        PermissionError: It belongs to another user, or others may enter it, and replace the socket.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder of this user alone; remove it")

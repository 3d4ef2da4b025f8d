"""Cache of local copies of state files, memory-mapped: a lookup reads only the pages it needs.

Files are immutable and named by their SHA-256, so a copy is never stale. A process checks the bytes
of a copy when it first uses it; only this user can access the folder, so nobody else changes it
after that. When the folder grows too large, the least recently used copies are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.arrow_files import file_table, sha256

# Smaller files are read as a whole: mapping them would cost more than it saves.
SMALL: Final = 256 * 1024
MAX_BYTES: Final = 8 * 2**30
_PRIVATE: Final = 0o700

_checked: set[str] = set()


class StoredFile(Protocol):
    """Size and digest of a file, as recorded in a manifest or snapshot."""

    @property
    def size_bytes(self) -> int:
        """The file's size."""
        ...

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        ...


def mapped_file(store: ObjectStore, key: str, entry: StoredFile) -> pa.Table:
    """The rows of a state file.

    Raises:
        ObjectMissing, ChecksumMismatch: It is gone, or damaged.
    """
    folder = cache_folder() if entry.size_bytes > SMALL else None
    if folder is None:
        return file_table(read_checked(store, key, entry))
    path = folder / f"{entry.sha256}.arrow"
    if entry.sha256 not in _checked or not path.exists():
        _fetch(store, key, entry, path)
    with contextlib.suppress(OSError):
        os.utime(path)
    try:
        mapped = pa.memory_map(str(path))
    except FileNotFoundError:
        # Another process has just evicted the copy.
        return file_table(read_checked(store, key, entry))
    return pa.ipc.open_file(mapped).read_all()


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """The cache folder, accessible to this user only; None if it cannot be made so."""
    path = Path(tempfile.gettempdir()) / f"laminar-state-{os.getuid()}"
    try:
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return path if is_mine and stat.S_IMODE(found.st_mode) == _PRIVATE else None


def _fetch(store: ObjectStore, key: str, entry: StoredFile, path: Path) -> None:
    if not path.exists():
        _make_room(path.parent, entry.size_bytes)
        store.download(key, path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != entry.sha256:
        path.unlink(missing_ok=True)
        raise ChecksumMismatch(key, entry.sha256, digest)
    _checked.add(entry.sha256)


def read_checked(store: ObjectStore, key: str, entry: StoredFile) -> bytes:
    """The bytes of a state file, from the store.

    Raises:
        ObjectMissing, ChecksumMismatch: It is gone, or damaged.
    """
    data = store.read(key)
    digest = sha256(data)
    if len(data) != entry.size_bytes or digest != entry.sha256:
        raise ChecksumMismatch(key, entry.sha256, digest)
    return data


def _make_room(folder: Path, wanted: int) -> None:
    """Evict the least recently used copies. Processes that have one mapped keep its bytes."""
    found: list[tuple[float, int, Path]] = []
    for each in folder.glob("*.arrow"):
        with contextlib.suppress(OSError):
            about = each.stat()
            found.append((about.st_mtime, about.st_size, each))
    total = sum(size for _, size, _ in found) + wanted
    for _, size, each in sorted(found):
        if total <= MAX_BYTES:
            return
        each.unlink(missing_ok=True)
        total -= size

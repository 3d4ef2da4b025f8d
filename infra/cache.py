"""The directory that installed services live in, shared by every checkout and process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return ``$LAMINAR_CACHE``, or ``laminar-dagster`` in the user's cache directory."""
    if own := os.environ.get("LAMINAR_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "laminar-dagster"


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Hold ``lock_file`` alone; the kernel lets go of it when the process dies."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    # The file stays: removing it would let two processes lock two different files of one name.
    with lock_file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def install_once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the directory ``name`` in the cache, filled by ``build`` if it is not there yet.

    Of several processes one builds and the others wait. ``build`` gets an empty directory that is
    renamed into place when it returns, so an interrupted build leaves nothing that looks complete.

    Args:
        name: Directory name; holds the version, since an installed directory is never rebuilt.
        build: Fills the directory, or raises.

    Returns:
        The complete directory.
    """
    target = cache_dir() / name
    if target.is_dir():
        return target
    with exclusive(cache_dir() / "locks" / f"{name}.lock"):
        if target.is_dir():
            return target
        unfinished = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=cache_dir()))
        try:
            build(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target

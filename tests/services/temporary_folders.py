"""Where the folders of tests lie: in memory, if the machine has a disk there with enough room.

Servers, stores and sinks call fsync, and each call waits for the disk: of a test with a database of
its own, that is more than half the time. Processes that are killed lose nothing by a disk in
memory, as they lose nothing by the system's cache; only a power cut would show the difference.
The long lane stays on the disk, so that all of it runs on a real one, too.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from tests.services.proofs import is_long_lane

# Where pytest makes its folders, if it is set.
VARIABLE: Final = "PYTEST_DEBUG_TEMPROOT"
_IN_MEMORY: Final = Path("/dev/shm")
_MEMORY: Final = Path("/proc/meminfo")
# Three processes of tests leave less than half of it; the rest is what their servers take.
ROOM: Final = 8 * 2**30


def pytest_configure() -> None:
    """Choose before the first folder is made; xdist's processes and `pytester` inherit it."""
    if not is_long_lane():
        choose(os.environ)


def choose(environment: MutableMapping[str, str], folder: Path = _IN_MEMORY) -> None:
    """Have pytest make its folders in memory, unless somebody has said where."""
    if VARIABLE not in environment and is_fit(folder, ROOM):
        environment[VARIABLE] = str(folder)


def is_fit(folder: Path, room: int) -> bool:
    """Whether a folder can be written to, runs programs, and has room that memory has as well.

    Tests write programs and run them, and a container may forbid that.
    """
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return (
        os.access(folder, os.W_OK | os.X_OK)
        and not disk.f_flag & os.ST_NOEXEC
        and disk.f_bavail * disk.f_frsize >= room
        and _available() >= room
    )


def _available(file: Path = _MEMORY) -> int:
    """Bytes of memory that processes can have without swapping; 0 where nobody says."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith("MemAvailable:"))
    return next((int(kilobytes) * 1024 for _, kilobytes, _ in fields), 0)

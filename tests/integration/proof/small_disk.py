"""A disk that is full on command: a tmpfs, whose size and number of files can be set."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOMY = ("size=64m", "nr_inodes=10000")


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs."""

    folder: Path

    def leave_files(self, count: int) -> None:
        """Let so many more files and folders be made, and no more."""
        state = os.statvfs(self.folder)
        self._remount(f"nr_inodes={state.f_files - state.f_ffree + count}")

    def leave_bytes(self, count: int) -> None:
        """Let so much more be written, and no more."""
        state = os.statvfs(self.folder)
        self._remount(f"size={(state.f_blocks - state.f_bfree) * state.f_frsize + count}")

    def make_room(self) -> None:
        """As if it were empty."""
        self._remount(*_ROOMY)

    def set_read_only(self) -> None:
        """Refuse every write, also of root."""
        self._remount("ro")

    def set_writable(self) -> None:
        """Accept writes again."""
        self._remount("rw")

    def _remount(self, *options: str) -> None:
        _run("mount", "-o", ",".join(("remount", *options)), str(self.folder))


@contextmanager
def mounted(folder: Path) -> Iterator[SmallDisk]:
    """A small disk at a folder; skips the test where mounting is not allowed."""
    folder.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", ",".join(_ROOMY), "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a tmpfs, and this user may not mount one: {error}")
    try:
        yield SmallDisk(folder)
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

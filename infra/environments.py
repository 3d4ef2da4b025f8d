"""Pythons with something installed, and nothing of the project: peers, orchestrators."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.cache import cache_dir, install_once
from infra.errors import ServiceUnavailable


def python_with(name: str, requirements: Sequence[str]) -> Path:
    """The Python of an environment in the cache, which is made if it is not there yet.

    Args:
        name: Of the environment; holds the versions, since it is never made anew.
        requirements: What to install.

    Raises:
        ServiceUnavailable: It could not be installed.
    """

    def build(folder: Path) -> None:
        home = str(folder / "env")
        run(name, [find_uv(), "venv", "--quiet", "--python", sys.executable, home])
        run(name, [find_uv(), "pip", "install", "--quiet", "--python", home, *requirements])

    return install_once(name, build) / "env" / "bin" / "python"


def run(name: str, command: Sequence[str]) -> None:
    """Run a command that installs something.

    Raises:
        ServiceUnavailable: It failed; says what it printed.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ServiceUnavailable(name, f"cannot be installed:\n{done.stdout}")


def find_uv() -> str:
    """The uv on the PATH, or the one that the set-up of the project brought.

    Raises:
        ServiceUnavailable: There is none.
    """
    if found := shutil.which("uv"):
        return found
    own_copies = sorted(cache_dir().glob("uv-*/bin/uv"))
    if not own_copies:
        raise ServiceUnavailable("uv", "install uv")
    return str(own_copies[-1])

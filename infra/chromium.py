"""Find Chromium, or install it: the browser that looks at Dagster's pages in tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from infra import packages
from infra.errors import ServiceUnavailable

NAME = "chromium"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# On Debian, a browser without fonts shows pages without letters.
_PACKAGES = {
    "apt-get": "chromium fonts-liberation",
    **dict.fromkeys(("dnf", "yum", "apk"), "chromium"),
}


@dataclass(frozen=True, slots=True)
class Chromium:
    """A Chromium, or a Chrome, that runs.

    Attributes:
        program: What to start.
        version: For example ``150.0.7871.24``.
    """

    program: Path
    version: str


def parse_version(text: str) -> str | None:
    """Read the version from what ``chromium --version`` prints."""
    found = re.search(r"(?:Chromium|Google Chrome) (\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None


def examine(program: Path) -> Chromium | None:
    """Run a browser for its version, and return it if it has one."""
    try:
        # It may be a stub that only says how to install the browser; so run it.
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(answer.stdout)
    return Chromium(program, version) if version is not None else None


def find() -> Chromium | None:
    """Return the first browser on the ``PATH`` that runs."""
    for name in _PROGRAMS:
        program = shutil.which(name)
        if program is not None and (browser := examine(Path(program))):
            return browser
    return None


def require() -> Chromium:
    """Return the browser of this machine.

    Raises:
        ServiceUnavailable: There is none.
    """
    browser = find()
    if browser is None:
        raise ServiceUnavailable(NAME, "install Chromium: `python -m infra install chromium`")
    return browser


def install() -> None:
    """Find the browser, or install it with the system's package manager.

    Raises:
        ServiceUnavailable: It cannot be installed; the message says what to do.
    """
    if find() is not None:
        return
    reason = packages.install("Chromium", _PACKAGES, f"so that `{NAME}` is on the PATH")
    if reason is None and find() is None:
        reason = "the package was installed, but no Chromium on the PATH runs"
    if reason is not None:
        raise ServiceUnavailable(NAME, reason)

"""Packages of another release of Debian, unpacked into a folder and never installed.

They come from the mirror that this machine's own apt uses, under the signature of Debian's archive.
apt is given a state of its own, in which nothing is installed: so it fetches everything that a
package needs, down to the C library, and the system's own packages stay as they are. Programs run
by the loader of their folder (`program`).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from infra.errors import ServiceUnavailable

_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_RELEASE: Final = Path("/etc/os-release")
_TARGETS: Final = ("--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
_COMPONENT: Final = "main"
_LIBRARIES: Final = "usr/lib/*-linux-gnu"
_LOADER: Final = "ld-linux*.so.*"


def unpack(service: str, package: str, suite: str, into: Path) -> None:
    """Unpack a package and all that it depends on.

    Args:
        service: Whose package it is, for the error.
        package: Its name.
        suite: The release that has it, such as ``sid``.
        into: An empty folder, which becomes the root of the packages' files.

    Raises:
        ServiceUnavailable: This is no Debian, or its mirror does not have the package.
    """
    mirror = _mirror(service)
    with tempfile.TemporaryDirectory() as given:
        state = Path(given)
        apt = _apart(state, f"deb [signed-by={_KEYRING}] {mirror} {suite} {_COMPONENT}")
        _run(service, ["apt-get", *apt, "update"])
        wanted = ("install", "--yes", "--no-install-recommends", "--download-only", package)
        _run(service, ["apt-get", *apt, *wanted])
        for archive in sorted((state / "archives").glob("*.deb")):
            _run(service, ["dpkg-deb", "--extract", str(archive), str(into)])


def program(root: Path, name: str) -> list[str]:
    """The command that runs a program of an unpacked folder, with the libraries of that folder.

    Args:
        root: The folder.
        name: Of the program, below it.
    """
    (libraries,) = root.glob(_LIBRARIES)
    loader = next(iter(sorted(libraries.glob(_LOADER))))
    return [str(loader), "--library-path", str(libraries), str(root / name)]


def _mirror(service: str) -> str:
    """Where this machine's apt finds the release that it is of."""
    if platform.system() != "Linux" or not shutil.which("apt-get") or not _KEYRING.exists():
        raise ServiceUnavailable(service, "its package is unpacked on Debian alone")
    lines = _RELEASE.read_text().splitlines()
    about = dict(line.split("=", 1) for line in lines if "=" in line)
    release = about.get("VERSION_CODENAME", "").strip('"')
    for line in _run(service, ["apt-get", "indextargets", *_TARGETS]).splitlines():
        address, found, component = line.split(" ")
        if (found, component) == (release, _COMPONENT):
            return address
    raise ServiceUnavailable(service, f"apt's sources do not name a mirror of {release or '?'}")


def _apart(state: Path, source: str) -> Sequence[str]:
    """Options that make apt know this source alone, and nothing of the system."""
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(source + "\n")
    settings: dict[str, object] = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "-",
        # What a person would read about packages, as long as the lists themselves.
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::Languages": "none",
        # An image may tell apt to throw away what it has fetched.
        "APT::Keep-Downloaded-Packages": "true",
    }
    if os.geteuid() == 0:
        # Its own account may not enter the folder.
        settings["APT::Sandbox::User"] = "root"
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _run(service: str, command: Sequence[str]) -> str:
    answer = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        last = "\n".join(answer.stdout.splitlines()[-5:])
        raise ServiceUnavailable(service, f"`{command[0]}` failed:\n{last}")
    return answer.stdout

"""The system's package manager, used where that needs no password."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping


def install(what: str, packages: Mapping[str, str], otherwise: str = "") -> str | None:
    """Install a package if that needs no password.

    Args:
        what: What is wanted, for people.
        packages: What the package is called, by the package managers that have it; or several
            packages, with spaces between them.
        otherwise: What else to do where there is none of these package managers.

    Returns:
        What to install by hand, or None when the package manager reported success.
    """
    for manager, package in packages.items():
        if shutil.which(manager) is None:
            continue
        advice = f"install {what}, for example: {manager} install {package}"
        privilege = _privilege()
        if privilege is None:
            return advice
        sys.stderr.write(f"Installing {package} with {manager} ...\n")
        return None if _install_with(manager, package, privilege) else advice
    return f"install {what}, {otherwise}" if otherwise else f"install {what}"


def _privilege() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if shutil.which("sudo") and subprocess.run([*sudo, "true"], check=False).returncode == 0:
        return sudo
    return None


def _install_with(manager: str, package: str, privilege: list[str]) -> bool:
    def run(*arguments: str) -> bool:
        command = [*privilege, "env", "DEBIAN_FRONTEND=noninteractive", manager, *arguments]
        # Standard output is for the answer of the program that calls this.
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        return done.returncode == 0

    names = package.split()
    if manager == "apk":
        return run("add", *names)
    if manager != "apt-get":
        return run("install", "-y", *names)
    # Somebody else may be installing something; and what a browser recommends is a desktop.
    install = ("-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends", *names)
    # The package lists may be missing or name versions that are gone.
    return run(*install) or (run("-o", "DPkg::Lock::Timeout=600", "update") and run(*install))

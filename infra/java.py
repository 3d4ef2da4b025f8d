"""Find Java 17 or later, or install it: ``python -m infra.java`` prints its home directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra import packages

MINIMUM = 17
_JVM_DIRECTORIES = ("usr/lib/jvm/*", "Library/Java/JavaVirtualMachines/*/Contents/Home")
_PACKAGES = {
    "apt-get": "openjdk-17-jre-headless",
    "dnf": "java-17-openjdk-headless",
    "yum": "java-17-openjdk-headless",
    "apk": "openjdk17-jre-headless",
}


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that runs.

    Attributes:
        home: What ``JAVA_HOME`` has to be.
        version: Feature release, such as 17.
    """

    home: Path
    version: int


def parse_version(text: str) -> int | None:
    """Read the feature release from what ``java -version`` prints; ``1.8`` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def examine(home: Path) -> Java | None:
    """Run the Java in ``home`` and return it if it is recent enough."""
    try:
        # Its `java` may be a stub that only offers to install Java; so run it.
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(answer.stderr + answer.stdout)
    return Java(home, version) if version is not None and version >= MINIMUM else None


def find() -> Java | None:
    """Return the Java of ``JAVA_HOME``, else of ``PATH``, else the oldest that will do.

    The oldest, because Spark is tested on the minimum and new releases remove what it needs.
    """
    for home in _chosen():
        if java := examine(home):
            return java
    installed = (home for pattern in _JVM_DIRECTORIES for home in Path("/").glob(pattern))
    suitable = [java for home in sorted(installed) if (java := examine(home))]
    return min(suitable, key=lambda java: java.version, default=None)


def install() -> str | None:
    """Install Java with the system's package manager if that needs no password.

    Returns:
        Why not, or None when the package manager reported success.
    """
    return packages.install(f"Java {MINIMUM} or later", _PACKAGES, "and set JAVA_HOME")


def _chosen() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent


def main() -> int:
    """Print the home of a suitable Java, installing one if need be; return the exit code."""
    java = find()
    if java is None:
        reason = install()
        java = find() if reason is None else None
        if java is None:
            print(f"error: {reason or 'Java was installed but is not found'}", file=sys.stderr)
            return 1
    print(java.home)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Maven, which fetches the servers that are written in Java, or its installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from infra import java, packages
from infra.errors import ServiceUnavailable

_PACKAGES: Final = dict.fromkeys(("apt-get", "dnf", "yum", "apk"), "maven")
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# Later ones want the parents of a file's project as well, which are not always published.
_PLUGIN_FOR_FILES: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.10"

_ERROR: Final = "[ERROR]"


@dataclass(frozen=True, slots=True)
class Artifact:
    """What Maven calls a file of a release."""

    group: str
    name: str
    version: str

    def as_dependency(self) -> str:
        """The artifact in the words of a project file."""
        return (
            f"<dependency><groupId>{escape(self.group)}</groupId>"
            f"<artifactId>{escape(self.name)}</artifactId>"
            f"<version>{escape(self.version)}</version></dependency>"
        )


def project_of(artifacts: Sequence[Artifact]) -> str:
    """The text of a project file that depends on ``artifacts`` and is nothing else."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>laminar</groupId><artifactId>install</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<dependencies>{''.join(map(Artifact.as_dependency, artifacts))}</dependencies>"
        "</project>"
    )


def copy_with_dependencies(service: str, artifacts: Sequence[Artifact], into: Path) -> None:
    """Put the jars of ``artifacts``, and all that they need to run, into one folder.

    Raises:
        ServiceUnavailable: Maven is missing or cannot fetch them.
    """
    with tempfile.TemporaryDirectory(prefix="laminar-maven-") as folder:
        project = Path(folder) / "pom.xml"
        project.write_text(project_of(artifacts))
        goal = [f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
        _run(service, ["-f", str(project), *goal, f"-DoutputDirectory={into}"], Path(folder))


def unpack(service: str, artifact: Artifact, kind: str, into: Path) -> None:
    """Unpack one ``tar.gz`` of an artifact into a folder.

    Args:
        service: Whom it is for.
        artifact: The release.
        kind: Which of its archives; Maven says classifier.
        into: An existing folder.

    Raises:
        ServiceUnavailable: Maven is missing or cannot fetch it.
    """
    full = f"{artifact.group}:{artifact.name}:{artifact.version}:tar.gz:{kind}"
    with tempfile.TemporaryDirectory(prefix="laminar-maven-") as folder:
        goal = [f"{_PLUGIN_FOR_FILES}:copy", f"-Dartifact={full}"]
        _run(service, [*goal, f"-DoutputDirectory={folder}"], Path(folder))
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(into, filter="data")


def _run(service: str, arguments: Sequence[str], cwd: Path) -> None:
    found = java.find()
    if found is None:
        raise ServiceUnavailable(service, f"install Java {java.MINIMUM} or later")
    done = subprocess.run(
        [_program(service), "--batch-mode", "--quiet", "--strict-checksums", *arguments],
        env={**os.environ, "JAVA_HOME": str(found.home)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ServiceUnavailable(service, f"`mvn` failed:\n{first_errors(done.stdout)}")


def first_errors(output: str, lines: int = 5) -> str:
    """What Maven says went wrong, without its advice at the end."""
    errors = [line[line.index(_ERROR) :] for line in output.splitlines() if _ERROR in line]
    return "\n".join((errors or output.splitlines())[:lines])


def _program(service: str) -> str:
    if shutil.which("mvn") is None:
        reason = packages.install("Apache Maven", _PACKAGES, "so that `mvn` is on the PATH")
        if reason is not None:
            raise ServiceUnavailable(service, reason)
    program = shutil.which("mvn")
    if program is None:
        raise ServiceUnavailable(service, "Maven was installed, but `mvn` is not on the PATH")
    return program

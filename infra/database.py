"""The life of a database server from the system's packages, on files of its own.

Found or installed, given a password and a folder, run on loopback. Started by root, it runs as an
account without rights. What one server does in its own way is in its own module.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from infra import packages
from infra.accounts import hand_over, without_root
from infra.errors import ServiceFailed, ServiceUnavailable
from infra.service import Endpoint, Launch, Service

USER = "laminar"


@dataclass(frozen=True, slots=True)
class DatabaseEndpoint(Endpoint):
    """Where the server listens, and who may use it.

    Attributes:
        user: May do everything in this server.
        password: Its password; left out of the representation, which ends up in test output.
        database: The one that is there from the beginning.
        data: The server's files.
    """

    user: str
    password: str = field(repr=False)
    database: str
    data: Path = field(repr=False)


E = TypeVar("E", bound=DatabaseEndpoint)


class DatabaseServer(Service[E]):
    """A server with password authentication for everybody."""

    ready_within: ClassVar[float] = 60.0
    title: ClassVar[str]
    packages: ClassVar[Mapping[str, str]]
    accounts: ClassVar[tuple[str, ...]]
    database: ClassVar[str]
    defaults: ClassVar[Mapping[str, str]]

    def __init__(self, settings: Mapping[str, str] = {}) -> None:
        """Create a server that is not running.

        Args:
            settings: Of the server, over our defaults.
        """
        super().__init__()
        self._settings = {**self.defaults, **settings}

    @abstractmethod
    def find(self) -> Path | None:
        """The newest server on this machine that is new enough."""

    @abstractmethod
    def is_initialised(self, data: Path) -> bool:
        """Whether the server's files are all there."""

    @abstractmethod
    def initialise(self, server: Path, data: Path, password: str, prefix: list[str]) -> None:
        """Make the server's files, in a folder that is empty and belongs to its account.

        Args:
            server: What ``find`` has found.
            data: The folder.
            password: Of the only user.
            prefix: What a command begins with to be run without root's rights.

        Raises:
            ServiceFailed: With what was printed.
        """

    @abstractmethod
    def serve(self, server: Path, endpoint: E) -> tuple[list[str], dict[str, str]]:
        """The command that serves the files, and the variables it needs."""

    @abstractmethod
    def endpoint_at(self, port: int, password: str, data: Path) -> E:
        """Where it will listen."""

    def install(self) -> None:
        """Find the server, or install it with the system's package manager."""
        if self.find() is not None:
            return
        reason = packages.install(self.title, self.packages)
        if reason is None and self.find() is None:
            reason = f"the package was installed, but no {self.title} was found"
        if reason is not None:
            raise ServiceUnavailable(self.name, reason)

    def launch(self, data_dir: Path, port: int) -> Launch[E]:
        """Serve ``data_dir`` on loopback. A second start finds its data again."""
        data_dir = data_dir.absolute()
        server, data = self.require(), data_dir / "data"
        prefix = without_root(self.name, self.accounts, data_dir, server)
        if not self.is_initialised(data):
            self._make_files(server, data, prefix)
        endpoint = self.endpoint_at(port, _password_file(data_dir).read_text(), data)
        command, environment = self.serve(server, endpoint)
        return Launch(command=[*prefix, *command], environment=environment, endpoint=endpoint)

    def require(self) -> Path:
        """What ``find`` finds.

        Raises:
            ServiceUnavailable: Nothing.
        """
        found = self.find()
        if found is None:
            reason = f"install it: `python -m infra install {self.name}`"
            raise ServiceUnavailable(self.name, reason)
        return found

    def hand_over(self, *paths: Path) -> None:
        """Give files to the account that the server runs as."""
        hand_over(self.name, self.accounts, *paths)

    def run_program(
        self, command: list[str], problem: str, *, text: str = "", environment: dict[str, str]
    ) -> None:
        """Run a program to its end.

        Args:
            command: Program and arguments.
            problem: What to say if it fails.
            text: What it reads from its standard input.
            environment: Variables added to this process's own.

        Raises:
            ServiceFailed: With what it printed.
        """
        answer = subprocess.run(
            command,
            env={**os.environ, **environment},
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise ServiceFailed(self.name, f"{problem}:\n{answer.stdout}")

    def _make_files(self, server: Path, data: Path, prefix: list[str]) -> None:
        """With a password that only our account can read."""
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o700)
        self.hand_over(data)
        password = secrets.token_urlsafe(24)
        write_secret(_password_file(data.parent), password)
        self.initialise(server, data, password, prefix)


def write_secret(file: Path, secret: str) -> None:
    """Write a new file that nobody but its owner can read, at any time."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(secret)


def newest(paths: Iterable[Path], version_of: Callable[[Path], Any], oldest: Any) -> Path | None:
    """Of those whose version is known and not too old, the one with the highest."""
    found = {path: version for path in paths if (version := version_of(path)) is not None}
    usable = [path for path, version in found.items() if version >= oldest]
    return max(usable, key=lambda path: found[path], default=None)


def printed_version(program: Path) -> str:
    """What a program prints when it is asked for its version; nothing if it does not run."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return answer.stdout


def _password_file(data_dir: Path) -> Path:
    return data_dir / "password"

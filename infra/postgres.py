"""A real PostgreSQL server, from the system's packages, on files of its own.

It refuses to run as root. Started by root, it runs as an account without rights.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from infra.database import (
    USER,
    DatabaseEndpoint,
    DatabaseServer,
    newest,
    printed_version,
    write_secret,
)
from infra.ports import LOOPBACK

_OLDEST: Final = 13
_PACKAGES: Final = {
    "apt-get": "postgresql",
    "dnf": "postgresql-server",
    "yum": "postgresql-server",
    "apk": "postgresql",
}
# Where Debian, Red Hat, Alpine and Homebrew put it; it is seldom on the PATH.
_PLACES: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_PROGRAMS: Final = ("initdb", "postgres", "psql")
_SETTINGS: Final = {
    "listen_addresses": LOOPBACK,
    # The usual folder for sockets belongs to the system's own server.
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A statement that fails may quote a secret.
    "log_min_error_statement": "panic",
}


@dataclass(frozen=True, slots=True)
class PostgresEndpoint(DatabaseEndpoint):
    """The server's address, in the ways its clients want it."""

    def dsn(self, database: str | None = None, *, driver: str = "") -> str:
        """The address that libpq and SQLAlchemy take, **with the password**.

        Args:
            database: Another than the first.
            driver: For SQLAlchemy, such as ``psycopg2``.
        """
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        account = f"{quote(self.user, '')}:{quote(self.password, '')}"
        return (
            f"{scheme}://{account}@{self.host}:{self.port}/{quote(database or self.database, '')}"
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that libpq reads."""
        return {
            "PGHOST": self.host,
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": self.database,
        }


class Postgres(DatabaseServer[PostgresEndpoint]):
    """The server."""

    name: ClassVar[str] = "postgres"
    title: ClassVar[str] = f"PostgreSQL {_OLDEST} or later"
    packages: ClassVar[Mapping[str, str]] = _PACKAGES
    accounts: ClassVar[tuple[str, ...]] = ("postgres", "nobody")
    database: ClassVar[str] = "postgres"
    defaults: ClassVar[Mapping[str, str]] = _SETTINGS

    def find(self) -> Path | None:
        """See ``DatabaseServer``. The folder of its programs."""
        return find()

    def is_initialised(self, data: Path) -> bool:
        """See ``DatabaseServer``."""
        return (data / "PG_VERSION").exists()

    def initialise(self, server: Path, data: Path, password: str, prefix: list[str]) -> None:
        """See ``DatabaseServer``."""
        handed = data.with_name("password.initdb")
        write_secret(handed, password)
        self.hand_over(handed)
        command = [*prefix, str(server / "initdb"), "--pgdata", str(data)]
        command += ["--username", USER, "--pwfile", str(handed), "--auth", "scram-sha-256"]
        # What sorts by bytes sorts alike everywhere.
        command += ["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]
        try:
            self.run_program(command, "initdb failed", environment=_clean())
        finally:
            handed.unlink()

    def serve(self, server: Path, endpoint: PostgresEndpoint) -> tuple[list[str], dict[str, str]]:
        """See ``DatabaseServer``."""
        settings = {**self._settings, "port": str(endpoint.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(server / "postgres"), "-D", str(endpoint.data), *options], _clean()

    def endpoint_at(self, port: int, password: str, data: Path) -> PostgresEndpoint:
        """See ``DatabaseServer``."""
        return PostgresEndpoint(LOOPBACK, port, USER, password, self.database, data)

    def is_ready(self, endpoint: PostgresEndpoint) -> bool:
        """Ask the server, with the password, whose files it serves."""
        answer = subprocess.run(
            [self.require() / "psql", "-XAtqw", "-c", "SHOW data_directory"],
            env={**os.environ, **endpoint.environment(), "PGCONNECT_TIMEOUT": "5"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return answer.returncode == 0 and Path(answer.stdout.strip()) == endpoint.data

    def stop(self) -> None:
        """End the server at once; left to itself, it would wait for its clients to go."""
        if self._identity is not None and self._identity.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._identity.pid, signal.SIGINT)
        super().stop()


def find() -> Path | None:
    """The folder of the newest PostgreSQL server on this machine that is new enough."""
    return newest(
        _folders(), lambda folder: parse_version(printed_version(folder / "postgres")), _OLDEST
    )


def parse_version(text: str) -> int | None:
    """Read the major version from what ``postgres --version`` prints."""
    found = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(found.group(1)) if found else None


def _folders() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for place in _PLACES:
        folders += Path("/").glob(place.lstrip("/"))
    for folder in folders:
        if all((folder / program).is_file() for program in _PROGRAMS):
            yield folder


def _clean() -> dict[str, str]:
    """A developer's own variables would name other files, or another language for messages."""
    return {"LC_ALL": "C", "LANGUAGE": "C", "PGDATA": "", "PGOPTIONS": ""}

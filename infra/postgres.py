"""A real PostgreSQL server, from the system's packages, on files of its own.

It refuses to run as root. Started by root, it runs as an account without rights, and a data
directory below folders that only root may enter (such as those of tests) is opened to it by one
capability rather than by loosening the folders.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from infra import packages
from infra.errors import ServiceFailed, ServiceUnavailable
from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service

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
_ACCOUNTS: Final = ("postgres", "nobody")
_USER: Final = "laminar"
_DATABASE: Final = "postgres"
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
class PostgresEndpoint(Endpoint):
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


class Postgres(Service[PostgresEndpoint]):
    """The server, with password authentication for everybody."""

    name: ClassVar[str] = "postgres"
    ready_within: ClassVar[float] = 60.0

    def __init__(self, settings: Mapping[str, str] = {}) -> None:
        """Create a server that is not running.

        Args:
            settings: Of ``postgresql.conf``, over those above.
        """
        super().__init__()
        self._settings = {**_SETTINGS, **settings}

    def install(self) -> None:
        """Find the server's programs, or install them with the system's package manager."""
        if find() is not None:
            return
        reason = packages.install(f"PostgreSQL {_OLDEST} or later", _PACKAGES)
        if reason is None and find() is None:
            reason = f"the package was installed, but no PostgreSQL {_OLDEST} or later was found"
        if reason is not None:
            raise ServiceUnavailable(self.name, reason)

    def launch(self, data_dir: Path, port: int) -> Launch[PostgresEndpoint]:
        """Serve ``data_dir`` on loopback. A second start finds its data again."""
        data_dir = data_dir.absolute()
        programs, data = _require(), data_dir / "data"
        prefix = _as_account(data_dir)
        if not (data / "PG_VERSION").exists():
            _initialise(programs, data, prefix)
        endpoint = PostgresEndpoint(
            host=LOOPBACK,
            port=port,
            user=_USER,
            password=_password_file(data_dir).read_text(),
            database=_DATABASE,
            data=data,
        )
        settings = {**self._settings, "port": str(port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Launch(
            command=[*prefix, str(programs / "postgres"), "-D", str(data), *options],
            environment=_clean(),
            endpoint=endpoint,
        )

    def is_ready(self, endpoint: PostgresEndpoint) -> bool:
        """Ask the server, with the password, whose files it serves."""
        answer = subprocess.run(
            [_require() / "psql", "-XAtqw", "-c", "SHOW data_directory"],
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
    found = {folder: version for folder in _folders() if (version := _version(folder)) is not None}
    usable = [folder for folder, version in found.items() if version >= _OLDEST]
    return max(usable, key=lambda folder: found[folder], default=None)


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


def _version(folder: Path) -> int | None:
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return parse_version(answer.stdout)


def _require() -> Path:
    found = find()
    if found is None:
        raise ServiceUnavailable(Postgres.name, "install it: `python -m infra install postgres`")
    return found


def _as_account(data_dir: Path) -> list[str]:
    """What a command begins with to be run without root's rights; nothing if we have none."""
    if os.geteuid() != 0:
        return []
    account = _account()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        reason = "it does not run as root: install util-linux, for `setpriv`, or be another user"
        raise ServiceUnavailable(Postgres.name, reason)
    # The kernel forgets whom to die with when the account changes.
    prefix = [setpriv, "--pdeathsig", "keep", "--init-groups"]
    prefix += ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid)]
    if not all(folder.stat().st_mode & 0o001 for folder in (data_dir, *data_dir.parents)):
        prefix += ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    return prefix


def _account() -> pwd.struct_passwd:
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    reason = f"it does not run as root, and there is no account {' or '.join(_ACCOUNTS)}"
    raise ServiceUnavailable(Postgres.name, reason)


def _initialise(programs: Path, data: Path, prefix: list[str]) -> None:
    """Make the server's files, with a password that only our account can read.

    Raises:
        ServiceFailed: With what ``initdb`` printed.
    """
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    password = secrets.token_urlsafe(24)
    handed = data.with_name("password.initdb")
    for file in (_password_file(data.parent), handed):
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(password)
    if prefix:
        account = _account()
        for path in (data, handed):
            os.chown(path, account.pw_uid, account.pw_gid)
    command = [*prefix, str(programs / "initdb"), "--pgdata", str(data)]
    command += ["--username", _USER, "--pwfile", str(handed), "--auth", "scram-sha-256"]
    # What sorts by bytes sorts alike everywhere.
    command += ["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]
    answer = subprocess.run(
        command,
        env={**os.environ, **_clean()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        text=True,
        check=False,
    )
    handed.unlink()
    if answer.returncode != 0:
        raise ServiceFailed(Postgres.name, f"initdb failed:\n{answer.stdout}")


def _password_file(data_dir: Path) -> Path:
    return data_dir / "password"


def _clean() -> dict[str, str]:
    """A developer's own variables would name other files, or another language for messages."""
    return {"LC_ALL": "C", "LANGUAGE": "C", "PGDATA": "", "PGOPTIONS": ""}

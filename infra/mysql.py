"""A real MySQL server, on files of its own: the machine's, or one that is unpacked from Debian.

Of Debian's releases, unstable alone has MySQL. It keeps one version at a time, so the suite is what
is pinned here, and the oldest version that will do. The package conflicts with MariaDB's; unpacked
into the cache, both are there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from infra import debian
from infra.cache import cache_dir, install_once
from infra.database import USER, DatabaseServer, newest, printed_version, write_secret
from infra.errors import ServiceUnavailable
from infra.mysql_endpoint import MysqlEndpoint
from infra.ports import LOOPBACK

_OLDEST: Final = (8, 0)
_SUITE: Final = "sid"
_PACKAGE: Final = "mysql-server-core"
_UNPACKED: Final = f"mysql-debian-{_SUITE}"
_PLACES: Final = ("/usr/sbin", "/usr/libexec", "/usr/bin", "/opt/homebrew/bin", "/usr/local/bin")
_PROGRAM: Final = "mysqld"
_SETTINGS: Final = {
    "bind-address": LOOPBACK,
    # The usual places for sockets belong to the system's own server.
    "socket": "mysql.sock",
    "mysqlx": "OFF",
    "pid-file": "mysql.pid",
    "skip-name-resolve": "ON",
    "innodb-redo-log-capacity": "32M",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "OFF",
    # It keeps a log unless it is told not to; who wants one names it.
    "skip-log-bin": "",
    "log-error-verbosity": "2",
    # No statement reads or writes files.
    "secure-file-priv": "NULL",
}


class Mysql(DatabaseServer[MysqlEndpoint]):
    """The server."""

    name: ClassVar[str] = "mysql"
    title: ClassVar[str] = f"MySQL {_OLDEST[0]}.{_OLDEST[1]} or later"
    # By its name, most systems' package managers install MariaDB.
    packages: ClassVar[Mapping[str, str]] = {}
    accounts: ClassVar[tuple[str, ...]] = ("mysql", "nobody")
    database: ClassVar[str] = "laminar"
    defaults: ClassVar[Mapping[str, str]] = _SETTINGS

    def __init__(self, settings: Mapping[str, str] = {}) -> None:
        """Create a server that is not running."""
        super().__init__(settings)
        if "log-bin" in settings:
            del self._settings["skip-log-bin"]

    def find(self) -> Path | None:
        """See ``DatabaseServer``. The server's program."""
        return find()

    def install(self) -> None:
        """Find the server, or unpack it; a few seconds, and 60 MB to fetch, once."""
        if self.find() is not None:
            return
        try:
            install_once(_UNPACKED, lambda into: debian.unpack(self.name, _PACKAGE, _SUITE, into))
        except ServiceUnavailable as error:
            advice = f"install {self.title}, with `{_PROGRAM}` on the PATH; {error.reason}"
            raise ServiceUnavailable(self.name, advice) from None

    def is_initialised(self, data: Path) -> bool:
        """See ``DatabaseServer``."""
        return _mark(data).exists()

    def initialise(self, server: Path, data: Path, password: str, prefix: list[str]) -> None:
        """See ``DatabaseServer``."""
        handed = data.with_name("accounts.sql")
        statements = (
            f"CREATE DATABASE {self.database};",
            # Without names of hosts, loopback is an address. Its alphabet needs no quoting.
            f"CREATE USER {USER}@'{LOOPBACK}' IDENTIFIED BY '{password}';",
            f"GRANT ALL ON *.* TO {USER}@'{LOOPBACK}' WITH GRANT OPTION;",
            # Has no password.
            "DROP USER root@localhost;",
        )
        write_secret(handed, "\n".join(statements) + "\n")
        self.hand_over(handed)
        command = [*prefix, *self._command(server, data)]
        command += ["--initialize-insecure", f"--init-file={handed}"]
        try:
            self.run_program(command, "it cannot make its files", environment={})
        finally:
            handed.unlink()
        _mark(data).touch()

    def serve(self, server: Path, endpoint: MysqlEndpoint) -> tuple[list[str], dict[str, str]]:
        """See ``DatabaseServer``."""
        return [*self._command(server, endpoint.data), f"--port={endpoint.port}"], {}

    def endpoint_at(self, port: int, password: str, data: Path) -> MysqlEndpoint:
        """See ``DatabaseServer``."""
        return MysqlEndpoint(LOOPBACK, port, USER, password, self.database, data)

    def is_ready(self, endpoint: MysqlEndpoint) -> bool:
        """See ``MysqlEndpoint``."""
        return endpoint.is_ready()

    def _command(self, server: Path, data: Path) -> list[str]:
        root, program, places = _root(), [str(server)], [f"--datadir={data}"]
        if server.is_relative_to(root):
            program = debian.program(root, str(server.relative_to(root)))
            places += [f"--basedir={root / 'usr'}", f"--lc-messages-dir={root / 'usr/share/mysql'}"]
        # A developer's own settings would name other files.
        command = [*program, "--no-defaults", *places]
        for name, value in self._settings.items():
            command.append(f"--{name}={value}" if value else f"--{name}")
        return command


def find() -> Path | None:
    """The newest MySQL server of this machine that is new enough, or else the unpacked one."""
    on_path = shutil.which(_PROGRAM)
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(place) / _PROGRAM for place in _PLACES]
    found = dict.fromkeys(each.resolve() for each in candidates if each.is_file())
    unpacked = _root() / "usr" / "sbin" / _PROGRAM
    own = newest(found, lambda program: parse_version(printed_version(program)), _OLDEST)
    return own or (unpacked if unpacked.is_file() else None)


def parse_version(text: str) -> tuple[int, int] | None:
    """Read the version from what ``mysqld --version`` prints; MariaDB's answers to it as well."""
    found = re.search(r"Ver (\d+)\.(\d+)\.(?!\S*MariaDB)", text)
    return (int(found[1]), int(found[2])) if found else None


def _root() -> Path:
    """Where it is unpacked."""
    return cache_dir() / _UNPACKED


def _mark(data: Path) -> Path:
    """There once the files are whole: a server that died while it made them leaves some."""
    return data.with_name("initialised")

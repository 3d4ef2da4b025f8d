"""A real MariaDB server, from the system's packages, on files of its own.

On Debian the server alone is installed, without the package that makes it a service of the
system: nothing runs that we did not start. Started by root, it runs as an account without rights.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from infra.database import USER, DatabaseServer, newest, printed_version
from infra.mysql_endpoint import MysqlEndpoint
from infra.ports import LOOPBACK

_OLDEST: Final = (10, 6)
_PACKAGES: Final = {
    "apt-get": "mariadb-server-core",
    "dnf": "mariadb-server",
    "yum": "mariadb-server",
    "apk": "mariadb",
}
# Where Debian, Red Hat, Alpine and Homebrew put it; it is seldom on the PATH of a user.
_PLACES: Final = ("/usr/sbin", "/usr/libexec", "/usr/bin", "/opt/homebrew/bin", "/usr/local/bin")
_PROGRAM: Final = "mariadbd"
_SHARES: Final = ("share/mysql", "share/mariadb")
# The statements that make the server's own tables; "mysql_" in older versions.
_SYSTEM_TABLES: Final = ("system_tables", "performance_tables", "system_tables_data")
_SETTINGS: Final = {
    "bind-address": LOOPBACK,
    # The usual place for the socket belongs to the system's own server.
    "socket": "mariadb.sock",
    "character-set-server": "utf8mb4",
    "skip-name-resolve": "1",
    "innodb-log-file-size": "64M",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "0",
}


class Mariadb(DatabaseServer[MysqlEndpoint]):
    """The server."""

    name: ClassVar[str] = "mariadb"
    title: ClassVar[str] = f"MariaDB {_OLDEST[0]}.{_OLDEST[1]} or later"
    packages: ClassVar[Mapping[str, str]] = _PACKAGES
    accounts: ClassVar[tuple[str, ...]] = ("mysql", "nobody")
    database: ClassVar[str] = "laminar"
    defaults: ClassVar[Mapping[str, str]] = _SETTINGS

    def find(self) -> Path | None:
        """See ``DatabaseServer``. The server's program."""
        return find()

    def is_initialised(self, data: Path) -> bool:
        """See ``DatabaseServer``."""
        return _mark(data).exists()

    def initialise(self, server: Path, data: Path, password: str, prefix: list[str]) -> None:
        """See ``DatabaseServer``.

        ``mariadb-install-db`` does the same, and needs parts of the client's package.
        """
        statements = [
            "CREATE DATABASE mysql;",
            "USE mysql;",
            *(each.read_text() for each in _statements(server)),
            # Accounts without a password. What is left owns a view, and nobody can be it.
            "DELETE FROM global_priv WHERE User <> 'mariadb.sys';",
            # From here on it knows of accounts.
            "FLUSH PRIVILEGES;",
            # Without names of hosts, loopback is an address. Its alphabet needs no quoting.
            f"CREATE USER {USER}@'{LOOPBACK}' IDENTIFIED BY '{password}';",
            f"GRANT ALL ON *.* TO {USER}@'{LOOPBACK}' WITH GRANT OPTION;",
            f"CREATE DATABASE {self.database};",
            "",
        ]
        command = [*prefix, *self._command(server, data), "--bootstrap"]
        self.run_program(
            command, "it cannot make its files", text="\n".join(statements), environment={}
        )
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
        # A developer's own settings would name other files. In a folder that servers share, one
        # that starts removes the temporary tables of the others.
        command = [str(server), "--no-defaults", f"--datadir={data}", f"--tmpdir={data}"]
        return command + [f"--{name}={value}" for name, value in self._settings.items()]


def find() -> Path | None:
    """The newest MariaDB server on this machine that is new enough."""
    return newest(_programs(), lambda program: parse_version(printed_version(program)), _OLDEST)


def parse_version(text: str) -> tuple[int, int] | None:
    """Read the version from what ``mariadbd --version`` prints."""
    found = re.search(r"Ver (\d+)\.(\d+)\.\S*MariaDB", text)
    return (int(found[1]), int(found[2])) if found else None


def _programs() -> Iterator[Path]:
    on_path = shutil.which(_PROGRAM)
    candidates = [Path(on_path)] if on_path else []
    candidates += [Path(place) / _PROGRAM for place in _PLACES]
    for path in dict.fromkeys(each.resolve() for each in candidates if each.is_file()):
        if _statements(path):
            yield path


def _statements(program: Path) -> list[Path]:
    """The files that make the server's own tables, in their order; none if one is missing."""
    for share in _SHARES:
        folder = program.parent.parent / share
        for prefix in ("mariadb", "mysql"):
            found = [folder / f"{prefix}_{name}.sql" for name in _SYSTEM_TABLES]
            if all(file.is_file() for file in found):
                return found
    return []


def _mark(data: Path) -> Path:
    """There once the files are whole: a server that died while it made them leaves some."""
    return data.with_name("initialised")

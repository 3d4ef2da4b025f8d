"""Finding a MariaDB server, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import mariadb
from infra.catalogue import SERVICES
from infra.errors import ServiceUnavailable
from infra.mariadb import Mariadb
from infra.mysql_endpoint import MysqlEndpoint


def fake_server(folder: Path, version: str, prefix: str = "mysql") -> Path:
    program = folder / "sbin" / "mariadbd"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'mariadbd  Ver {version} for debian-linux-gnu'\n")
    program.chmod(0o755)
    share = folder / "share" / "mysql"
    share.mkdir(parents=True)
    for name in ("system_tables", "performance_tables", "system_tables_data"):
        (share / f"{prefix}_{name}.sql").touch()
    return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a server, and without a package manager."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    places = tuple(str(tmp_path / name / "sbin") for name in ("a", "b", "c"))
    monkeypatch.setattr(mariadb, "_PLACES", places)
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64", (10, 11)),
        ("/usr/sbin/mariadbd  Ver 11.4.2-MariaDB for Linux on x86_64", (11, 4)),
        ("mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)", None),
        ("sh: mariadbd: not found\n", None),
    ],
)
def test_parse_version(printed: str, version: tuple[int, int] | None) -> None:
    assert mariadb.parse_version(printed) == version


def test_the_newest_is_taken(machine: Path) -> None:
    fake_server(machine / "a", "10.6.1-MariaDB")
    newest = fake_server(machine / "b", "11.4.2-MariaDB", "mariadb")
    fake_server(machine / "c", "10.11.19-MariaDB-0+deb12u1")
    assert mariadb.find() == newest


def test_one_that_is_too_old_or_another_or_not_whole_is_none(machine: Path) -> None:
    fake_server(machine / "a", "10.5.9-MariaDB")
    fake_server(machine / "b", "8.0.36")
    share = fake_server(machine / "c", "10.11.1-MariaDB").parents[1] / "share" / "mysql"
    (share / "mysql_system_tables.sql").unlink()
    assert mariadb.find() is None
    with pytest.raises(ServiceUnavailable, match=r"^mariadb: install MariaDB 10\.6 or later"):
        Mariadb().install()


def test_the_package_of_debian_starts_no_service_of_the_system() -> None:
    """``mariadb-server`` would; the server alone does not."""
    assert mariadb._PACKAGES["apt-get"] == "mariadb-server-core"


def test_it_is_in_the_catalogue() -> None:
    assert SERVICES["mariadb"] is Mariadb


def test_the_password_is_not_shown() -> None:
    endpoint = MysqlEndpoint("127.0.0.1", 3307, "u", "p@ss/word:%", "db", Path("/data"))
    assert "p@ss" not in repr(endpoint)
    assert endpoint.environment()["MYSQL_PWD"] == "p@ss/word:%"

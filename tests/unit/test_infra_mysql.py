"""Finding a MySQL server, unpacking one, and what is said when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra import debian, mysql
from infra.catalogue import SERVICES
from infra.errors import ServiceUnavailable
from infra.mysql import Mysql


def fake_server(program: Path, version: str) -> Path:
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'mysqld  Ver {version} for Linux on x86_64'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a server, without a cache, and without a package manager."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("LAMINAR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(mysql, "_PLACES", tuple(str(tmp_path / name) for name in ("a", "b")))
    return tmp_path


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)", (8, 0)),
        ("mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))", (9, 7)),
        ("mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64", None),
        ("sh: mysqld: not found\n", None),
    ],
)
def test_parse_version(printed: str, version: tuple[int, int] | None) -> None:
    assert mysql.parse_version(printed) == version


def test_the_machines_own_is_taken_before_the_unpacked_one(machine: Path) -> None:
    assert mysql.find() is None
    unpacked = machine / "cache" / "mysql-debian-sid" / "usr" / "sbin" / "mysqld"
    unpacked.parent.mkdir(parents=True)
    unpacked.touch()
    fake_server(machine / "a" / "mysqld", "5.7.44")
    assert mysql.find() == unpacked
    own = fake_server(machine / "b" / "mysqld", "8.4.1")
    assert mysql.find() == own


def test_without_debians_packages_it_is_told_what_to_install(machine: Path) -> None:
    with pytest.raises(ServiceUnavailable, match=r"^mysql: install MySQL 8\.0 or later, with"):
        Mysql().install()
    assert not any((machine / "cache").glob("mysql*"))


def test_it_is_in_the_catalogue() -> None:
    assert SERVICES["mysql"] is Mysql


def test_packages_come_from_the_mirror_that_the_machine_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a state of its own, in which nothing is installed."""
    release, keyring = tmp_path / "os-release", tmp_path / "keyring"
    release.write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    keyring.touch()
    monkeypatch.setattr(debian, "_RELEASE", release)
    monkeypatch.setattr(debian, "_KEYRING", keyring)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/it")
    commands: list[list[str]] = []
    sources: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        options = dict(part.split("=", 1) for part in command if "::" in part)
        if "update" in command:
            sources.append(Path(options["Dir::Etc::SourceList"]).read_text())
            assert Path(options["Dir::State::status"]).read_text() == ""
        if "--download-only" in command:
            archives = Path(options["Dir::Cache"]) / "archives"
            (archives / "b.deb").touch()
            (archives / "a.deb").touch()
        targets = "mirror://x/security/ bookworm-security main\nmirror://x/debian/ bookworm main\n"
        return subprocess.CompletedProcess(command, 0, targets)

    monkeypatch.setattr("subprocess.run", run)
    debian.unpack("it", "server", "sid", tmp_path)
    assert sources == [f"deb [signed-by={keyring}] mirror://x/debian/ sid main\n"]
    assert [Path(each[2]).name for each in commands if "--extract" in each] == ["a.deb", "b.deb"]


def test_a_program_is_run_by_the_loader_beside_it(tmp_path: Path) -> None:
    libraries = tmp_path / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (libraries / "ld-linux-x86-64.so.2").touch()
    loader = str(libraries / "ld-linux-x86-64.so.2")
    wanted = [loader, "--library-path", str(libraries), str(tmp_path / "usr/sbin/it")]
    assert debian.program(tmp_path, "usr/sbin/it") == wanted

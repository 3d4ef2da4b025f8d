"""Finding a Java that is recent enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import java


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1"', 17),
        ("Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_parse_version(printed: str, version: int | None) -> None:
    assert java.parse_version(printed) == version


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_JVM_DIRECTORIES", (f"{tmp_path}/jvm/*"[1:],))
    return tmp_path


def test_no_java(machine: Path) -> None:
    assert java.find() is None


def test_java_home_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(machine / "jvm" / "a", "17.0.1")
    home = fake_java(machine / "chosen", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find() == java.Java(home, 21)


def test_a_java_that_is_too_old_is_passed_over(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(machine / "old", "11.0.2")))
    home = fake_java(machine / "jvm" / "a", "17.0.1")
    assert java.find() == java.Java(home, 17)


def test_the_path_is_searched(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(machine / "elsewhere", "17.0.1")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/bin:/usr/bin")
    found = java.find()
    assert found is not None
    assert found.home == home


def test_of_several_the_oldest_that_will_do(machine: Path) -> None:
    for version in ("25", "11.0.1", "17.0.9", "21.0.1"):
        fake_java(machine / "jvm" / version, version)
    assert java.find() == java.Java(machine / "jvm" / "17.0.9", 17)


def test_without_means_to_install_it_says_what_to_install(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert java.main() == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "error: install Java 17 or later, and set JAVA_HOME\n"


def fake_apt(machine: Path, script: str) -> None:
    manager = machine / "bin" / "apt-get"
    manager.parent.mkdir()
    manager.write_text(f"#!/bin/sh\n{script}\n")
    manager.chmod(0o755)


def test_stale_package_lists_are_updated_and_the_install_tried_again(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, lists = machine / "calls", machine / "lists"
    fake_apt(
        machine,
        f"""echo "$@" >> {calls}
        case "$*" in *update) touch {lists} ;; *) test -e {lists} ;; esac""",
    )
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert java.install() is None
    patient = "-o DPkg::Lock::Timeout=600"
    install = f"{patient} install -y --no-install-recommends openjdk-17-jre-headless"
    assert calls.read_text().splitlines() == [install, f"{patient} update", install]


def test_without_privilege_it_names_the_package(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(machine, "exit 1")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    reason = java.install()
    assert reason is not None
    assert reason.endswith("apt-get install openjdk-17-jre-headless")

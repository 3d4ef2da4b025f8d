"""Maven: what it is asked for, and what is said when it fails."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from infra import maven, packages
from infra.errors import ServiceUnavailable
from infra.maven import Artifact

_SPACE = {"m": "http://maven.apache.org/POM/4.0.0"}
_KAFKA = Artifact("org.example", "server", "1.0")


def test_a_project_depends_on_each_artifact() -> None:
    root = ElementTree.fromstring(maven.project_of([_KAFKA, Artifact("a&b", "other", "<2")]))
    found = [
        tuple(part.text for part in each)
        for each in root.findall("m:dependencies/m:dependency", _SPACE)
    ]
    assert found == [("org.example", "server", "1.0"), ("a&b", "other", "<2")]


def test_errors_are_shown_without_colours_and_chatter() -> None:
    output = "noise\n\x1b[0m\x1b[0m[ERROR] not found\n[ERROR] help\nmore noise"
    assert maven.first_errors(output) == "[ERROR] not found\n[ERROR] help"
    assert maven.first_errors(output, 1) == "[ERROR] not found"


def test_what_is_no_error_is_better_than_nothing() -> None:
    assert maven.first_errors("one\ntwo", 1) == "one"


def test_without_maven_one_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="server: install Apache Maven"):
        maven._program("server")


def test_a_package_without_its_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(packages, "install", lambda *_: None)
    with pytest.raises(ServiceUnavailable, match="`mvn` is not on the PATH"):
        maven._program("server")


def test_a_failure_of_maven_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mvn"
    program.write_text("#!/bin/sh\necho '[ERROR] no such artifact'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(maven, "_program", lambda _: str(program))
    with pytest.raises(ServiceUnavailable, match="no such artifact"):
        maven.copy_with_dependencies("server", [_KAFKA], tmp_path / "into")


def test_an_archive_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.jar").write_text("jar")
    archive = tmp_path / "all.tar.gz"
    subprocess.run(["tar", "-C", tmp_path, "-czf", archive, "server.jar"], check=True)
    program, into = tmp_path / "mvn", tmp_path / "into"
    program.write_text(
        "#!/bin/sh\n"
        'for each in "$@"; do case "$each" in\n'
        f'  -DoutputDirectory=*) cp {archive} "${{each#*=}}" ;;\n'
        "esac; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(maven, "_program", lambda _: str(program))
    into.mkdir()
    maven.unpack("server", _KAFKA, "all", into)
    assert [file.name for file in into.iterdir()] == ["server.jar"]

"""How the Sparks of the tests start quickly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra import java, spark_classes


def test_without_an_archive_it_is_the_quick_compiler_alone(tmp_path: Path) -> None:
    assert spark_classes.quick_start(tmp_path / "none") == "-XX:TieredStopAtLevel=1"


def test_a_path_that_would_be_two_options_is_none(tmp_path: Path) -> None:
    archive = tmp_path / "two words"
    archive.touch()
    assert "SharedArchiveFile" not in spark_classes.quick_start(archive)


def test_a_file_that_is_no_archive_keeps_nobody_from_starting_and_is_not_talked_about(
    tmp_path: Path,
) -> None:
    found = java.find()
    if found is None:
        pytest.skip("there is no Java")
    archive = tmp_path / "broken"
    archive.write_bytes(b"no archive at all")
    program = [str(found.home / "bin" / "java"), *spark_classes.quick_start(archive).split()]
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "archive" not in done.stdout


def test_every_process_of_the_tests_is_told() -> None:
    assert "-XX:TieredStopAtLevel=1" in os.environ[spark_classes.VARIABLE]

"""Folders of tests lie in memory where that does, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.services import temporary_folders
from tests.services.temporary_folders import VARIABLE, choose, is_fit


@pytest.fixture(autouse=True)
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_folders, "ROOM", 1)


def test_a_folder_with_room_is_taken(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    choose(environment, tmp_path)
    assert environment == {VARIABLE: str(tmp_path)}


def test_who_has_said_where_is_heard(tmp_path: Path) -> None:
    environment = {VARIABLE: "/elsewhere"}
    choose(environment, tmp_path)
    assert environment == {VARIABLE: "/elsewhere"}


def test_what_there_is_not_is_left(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    choose(environment, tmp_path / "none")
    assert environment == {}


def test_more_than_there_is_cannot_be_had(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert is_fit(tmp_path, 1)
    assert not is_fit(tmp_path, disk.f_blocks * disk.f_frsize + 1)
    assert not is_fit(tmp_path, temporary_folders._available() * 2)


def test_a_machine_that_says_nothing_of_its_memory_has_none(tmp_path: Path) -> None:
    assert temporary_folders._available(tmp_path / "none") == 0
    (tmp_path / "meminfo").write_text("MemTotal:  7 kB\nMemAvailable:    3 kB\n")
    assert temporary_folders._available(tmp_path / "meminfo") == 3 * 1024


def test_where_programs_may_not_run_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = os.statvfs("/")
    values = list(seen)
    values[8] = seen.f_flag | os.ST_NOEXEC
    monkeypatch.setattr(os, "statvfs", lambda _folder: os.statvfs_result(values))
    assert not is_fit(Path("/"), 1)

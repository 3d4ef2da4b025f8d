"""Which files belong to a source, and in which order they are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from laminar_dagster.config.model import Place, SourceTable
from laminar_dagster.core.errors import AuthFailed, InvalidConfig, SeekFailed, SourceUnavailable
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.directory import Directory
from laminar_dagster.sources.file.source import FileSource
from tests.unit.sources.file.files import N, extents, file_source, plan, read

LINE = b'{"n":1}\n'


def _write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(LINE)


def _files(root: Path, pattern: str) -> tuple[str, ...]:
    return Directory("clicks", root, pattern).files(1000)


def test_files_come_in_the_order_of_their_utf8_bytes(tmp_path: Path) -> None:
    names = ["b", "a/z", "a.b", "a-b", "é", "z", "Z", "a/b/c", "\U0001f600", "\uffee"]
    _write(tmp_path, *names)
    assert _files(tmp_path, "**") == tuple(sorted(names, key=str.encode))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", {"a.json", "b.csv"}),
        ("*.json", {"a.json"}),
        ("?.json", {"a.json"}),
        ("[ab].*", {"a.json", "b.csv"}),
        ("*/*.json", {"x/c.json"}),
        ("**/*.json", {"a.json", "x/c.json", "x/y/d.json"}),
        ("x/**", {"x/c.json", "x/y/d.json"}),
        ("**/y/*", {"x/y/d.json"}),
        ("x/*/d.json", {"x/y/d.json"}),
        ("x?c.json", set()),
    ],
)
def test_a_pattern_matches_part_by_part(tmp_path: Path, pattern: str, expected: set[str]) -> None:
    _write(tmp_path, "a.json", "b.csv", "x/c.json", "x/y/d.json")
    assert set(_files(tmp_path, pattern)) == expected


def test_files_that_are_being_written_are_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, "a", ".a", "_a", "a.tmp", ".x/a", "_x/a", "x/_SUCCESS")
    os.mkfifo(tmp_path / "pipe")
    assert _files(tmp_path, "**") == ("a",)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "rootless"
    _write(root, "a")
    _write(outside, "secret")
    for target in (outside, outside / "secret", tmp_path, Path("/")):
        (root / "link").symlink_to(target)
        with pytest.raises(InvalidConfig, match="link is a link that leads out"):
            plan(file_source(root))
        (root / "link").unlink()


def test_a_link_inside_is_an_alias(tmp_path: Path) -> None:
    """Its target is read under its own name, and not twice."""
    _write(tmp_path, "2024-01-02.log")
    (tmp_path / "current.log").symlink_to("2024-01-02.log")
    (tmp_path / "loop").symlink_to(".")
    assert extents(plan(file_source(tmp_path, pattern="**"))) == {"2024-01-02.log": (0, 8)}


def test_a_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _write(root, "x/a")
    _write(tmp_path, "a")
    source = file_source(root, pattern="**")
    planned = plan(source)
    (root / "x" / "a").unlink()
    (root / "x").rmdir()
    (root / "x").symlink_to(tmp_path)
    with pytest.raises(SeekFailed, match="x/a leads through a link"):
        read(source, planned.ranges)


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    _write(tmp_path / "real", "a")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    source = file_source(tmp_path / "root")
    assert len(read(source, plan(source).ranges).rows) == 1


def test_a_name_that_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "odd\udcff").write_bytes(LINE)
    with pytest.raises(InvalidConfig, match="is not UTF-8"):
        plan(file_source(tmp_path))


def test_odd_names_that_can(tmp_path: Path) -> None:
    _write(tmp_path, "new\nline", "quote\"'", "sp ace", "{brace}", "100%")
    source = file_source(tmp_path)
    first = plan(source)
    assert len(read(source, first.ranges).rows) == 5
    assert read(source, plan(source, first).ranges).rows == []


def test_too_many_files(tmp_path: Path) -> None:
    _write(tmp_path, "a", "b", "c")
    assert len(plan(file_source(tmp_path, max_files=3)).ranges) == 3
    with pytest.raises(InvalidConfig, match=r"3 files match .* `max\.files` = 2"):
        plan(file_source(tmp_path, max_files=2))


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="No such file"):
        plan(file_source(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EACCES, AuthFailed),
        (errno.EPERM, AuthFailed),
        (errno.EIO, SourceUnavailable),
        (errno.ESTALE, SourceUnavailable),
        (errno.EMFILE, SourceUnavailable),
    ],
)
@pytest.mark.parametrize("call", ["open", "pread", "scandir"])
def test_what_the_system_refuses_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    error: type[Exception],
) -> None:
    _write(tmp_path, "a")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(error, match=os.strerror(number)):
        plan(file_source(tmp_path))


def test_limits_are_shared_between_the_files_that_wait(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(LINE * 3)
    source = file_source(tmp_path)
    by_records = plan(source, limits=Admission(max_records=4))
    assert extents(by_records) == {"a": (0, 16), "b": (0, 8), "c": (0, 8)}
    by_bytes = plan(source, limits=Admission(max_bytes=41))
    assert extents(by_bytes) == {"a": (0, 8), "b": (0, 16), "c": (0, 16)}
    both = plan(source, by_bytes, limits=Admission(max_bytes=41, max_records=2))
    assert extents(both) == {"a": (8, 8), "b": (16, 24), "c": (16, 24)}


def test_what_a_file_does_not_need_goes_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LINE * 100)
    (tmp_path / "b").write_bytes(LINE)
    (tmp_path / "c").write_bytes(b"")
    found = plan(file_source(tmp_path), limits=Admission(max_records=10))
    assert extents(found) == {"a": (0, 72), "b": (0, 8)}


def test_a_share_smaller_than_a_record_holds_nobody_back(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_bytes(LINE * 3)
    found = plan(file_source(tmp_path), limits=Admission(max_bytes=28))
    assert extents(found) == {"a": (0, 8), "b": (0, 8), "c": (0, 8), "d": (0, 0)}


def test_a_record_larger_than_the_limit_is_taken_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(LINE)
    (tmp_path / "b").write_bytes(b'{"n":1,"x":"' + b"x" * 50 + b'"}\n')
    (tmp_path / "c").write_bytes(LINE)
    source = file_source(tmp_path)
    first = plan(source, limits=Admission(max_bytes=20))
    assert extents(first) == {"a": (0, 8), "b": (0, 0), "c": (0, 8)}
    second = plan(source, first, limits=Admission(max_bytes=20))
    assert extents(second) == {"a": (8, 8), "b": (0, 65), "c": (8, 8)}


def test_a_folder_that_never_was_there_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    """One that was there, and is gone, may be a disk that is not mounted: that is another thing."""
    place = Place("sources.sql", 3)
    options = {"path": "in", "format": "ndjson"}
    table = SourceTable(SourceId("clicks"), N, None, "file", options, place)
    source = FileSource.from_table(table, tmp_path)
    with pytest.raises(InvalidConfig, match=rf"sources.sql:3: source clicks: .* {tmp_path}/in"):
        plan(source)
    (tmp_path / "in").write_text("a file")
    with pytest.raises(InvalidConfig, match="there is no folder"):
        plan(source)
    (tmp_path / "in").unlink()
    (tmp_path / "in").mkdir()
    first = plan(source)
    (tmp_path / "in").rmdir()
    with pytest.raises(SourceUnavailable, match="No such file"):
        plan(source, first)

"""Files that shrink, are replaced, renamed or gone; and which of that is allowed."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from laminar_dagster.core.errors import RetentionExpired, SeekFailed, SourceReplaced
from laminar_dagster.core.offsets import FilePosition, KafkaPosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from tests.unit.sources.file.files import (
    NO_LIMIT,
    NOW,
    ends,
    extents,
    file_source,
    plan,
    read,
    set_age,
    whole,
)

TEN = b"".join(b'{"n":%d}\n' % n for n in range(10))
ONE = len(b'{"n":0}\n')


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(TEN)
    return path


def test_a_file_that_shrank(data: Path) -> None:
    source = file_source(data.parent)
    first = plan(source)
    data.write_bytes(TEN[:-ONE])
    with pytest.raises(SourceReplaced, match=r"a\.log with 80 bytes or more, found 72 bytes"):
        plan(source, first)
    with pytest.raises(RetentionExpired, match=r"bytes 0 to 80 of a\.log.* first 72 bytes"):
        read(source, first.ranges)
    with pytest.raises(SourceReplaced, match="72 bytes"):
        source.verify(first)
    with pytest.raises(SourceReplaced, match="80 bytes or more, found 72"):
        source.check_seek(ends(first)[0])


def test_a_file_that_shrank_is_found_without_its_plan(data: Path) -> None:
    source = file_source(data.parent)
    stood = ends(plan(source))
    data.write_bytes(TEN[:-ONE])
    with pytest.raises(SourceReplaced, match="80 bytes or more, found 72 bytes"):
        source.plan(None, stood, NO_LIMIT, NOW)


@pytest.mark.parametrize("place", [0, 40, len(TEN) - 3])
def test_other_bytes_in_place_of_those_that_were_read(data: Path, place: int) -> None:
    source = file_source(data.parent)
    first = plan(source)
    changed = bytearray(TEN)
    changed[place] ^= 1
    data.write_bytes(bytes(changed) + TEN)
    with pytest.raises(SourceReplaced, match=r"a\.log with the 80 bytes that were read"):
        plan(source, first)
    with pytest.raises(SourceReplaced):
        source.verify(first)


def test_a_log_that_was_cut_off_and_grew_again(tmp_path: Path) -> None:
    """It is long enough to go on in the middle of new records, had nobody looked."""
    path = tmp_path / "app.log"
    path.write_bytes(TEN * 2000)
    source = file_source(tmp_path)
    first = plan(source)
    path.write_bytes(TEN[ONE:] * 3000)
    with pytest.raises(SourceReplaced):
        plan(source, first)


def test_a_change_after_the_end_is_growth(data: Path) -> None:
    """Only what was read is pinned: a torn line may still change."""
    data.write_bytes(TEN + b'{"n":')
    source = file_source(data.parent)
    first = plan(source)
    data.write_bytes(TEN + b'{"n":77}\n')
    assert [row["n"] for row in read(source, plan(source, first).ranges).rows] == [77]
    source.verify(first)


def test_a_copy_is_the_same_file(data: Path) -> None:
    """Another inode, another time; the bytes are what counts."""
    source = file_source(data.parent)
    first = plan(source)
    shutil.copy(data, data.parent / ".copy")
    data.unlink()
    (data.parent / ".copy").rename(data)
    assert extents(plan(source, first)) == {"a.log": (80, 80)}


# --- gone -----------------------------------------------------------------------------------------


def test_a_vanished_file_is_an_error(data: Path) -> None:
    source = file_source(data.parent)
    first = plan(source)
    data.unlink()
    with pytest.raises(RetentionExpired, match=r"a\.log from byte 80 on.*`on_vanished`"):
        plan(source, first)
    with pytest.raises(RetentionExpired, match=r"bytes 0 to 80 of a\.log"):
        read(source, first.ranges)
    with pytest.raises(RetentionExpired):
        source.verify(first)
    with pytest.raises(RetentionExpired):
        source.check_seek(ends(first)[0])
    with pytest.raises(RetentionExpired):
        file_source(data.parent, split_bytes=5).splits(first.ranges[0])


def test_a_finished_file_may_be_forgotten(data: Path) -> None:
    (data.parent / "b.log").write_bytes(TEN)
    source = file_source(data.parent, on_vanished="forget")
    first = plan(source)
    data.unlink()
    second = plan(source, first)
    assert extents(second) == {"b.log": (80, 80)}
    assert second.gaps == ()
    # A file of that name is a new one from now on.
    data.write_bytes(b'{"n":5}\n')
    assert extents(plan(source, second)) == {"a.log": (0, 8), "b.log": (80, 80)}


def test_a_file_that_was_not_read_to_its_end_is_not_forgotten(data: Path) -> None:
    source = file_source(data.parent, on_vanished="forget")
    first = plan(source, limits=Admission(max_records=3))
    data.unlink()
    with pytest.raises(RetentionExpired, match=r"a\.log from byte 24 on"):
        plan(source, first)


def test_a_gap_that_was_accepted_is_recorded(data: Path) -> None:
    source = file_source(data.parent, on_gap="earliest")
    first = plan(source, limits=Admission(max_records=3))
    data.unlink()
    second = plan(source, first)
    assert second.ranges == ()
    (gap,) = second.gaps
    assert gap.lost == whole("a.log", 80, 24)
    assert "a.log vanished" in gap.reason


def test_a_file_whose_turn_never_came_is_missed(data: Path) -> None:
    (data.parent / "b.log").write_bytes(TEN)
    source = file_source(data.parent, on_vanished="forget")
    first = plan(source, limits=Admission(max_records=1))
    assert extents(first) == {"a.log": (0, 8), "b.log": (0, 0)}
    (data.parent / "b.log").unlink()
    with pytest.raises(RetentionExpired, match=r"b\.log from byte 0 on"):
        plan(source, first)


@pytest.mark.parametrize("on_vanished", ["fail", "forget"])
@pytest.mark.parametrize("size", [10, 1000])
def test_a_renamed_file_is_not_read_twice(tmp_path: Path, on_vanished: str, size: int) -> None:
    """As log rotation does it."""
    (tmp_path / "a.log").write_bytes(TEN * size)
    (tmp_path / "c.log").write_bytes(b'{"n":7}\n')
    source = file_source(tmp_path, on_vanished=on_vanished)
    first = plan(source)
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    (tmp_path / "b.log").write_bytes(TEN[:-ONE] * size)
    (tmp_path / "short.log").write_bytes(b'{"n":7}\n')
    with pytest.raises(SourceReplaced, match=r"a\.log, found the same content .* a\.log\.1"):
        plan(source, first)


def test_a_file_that_begins_alike_is_not_a_renamed_one(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEN * 1000)
    source = file_source(tmp_path, on_vanished="forget")
    first = plan(source)
    (tmp_path / "a.log").unlink()
    (tmp_path / "b.log").write_bytes(TEN * 999 + b'{"n":1}\n' * 20)
    assert extents(plan(source, first)) == {"b.log": (0, 80 * 999 + 160)}


# --- settling, idling -----------------------------------------------------------------------------


def test_a_last_line_without_a_newline_waits(data: Path) -> None:
    data.write_bytes(TEN[:-1])
    set_age(data, 10**6)
    assert extents(plan(file_source(data.parent))) == {"a.log": (0, 72)}


def test_a_last_line_without_a_newline_settles(data: Path) -> None:
    data.write_bytes(TEN[:-1])
    source = file_source(data.parent, settle=timedelta(seconds=60))
    set_age(data, 59)
    first = plan(source)
    assert extents(first) == {"a.log": (0, 72)}
    set_age(data, 60)
    second = plan(source, first)
    assert extents(second) == {"a.log": (72, 79)}
    assert [row["n"] for row in read(source, second.ranges).rows] == [9]
    # The newline may still come, and more.
    data.write_bytes(TEN + b'{"n":10}\n')
    third = plan(source, second)
    assert [row["n"] for row in read(source, third.ranges).rows] == [10]
    # But not the rest of a record that was taken for whole.
    data.write_bytes(TEN[:-1] + b" \n")
    with pytest.raises(SeekFailed, match=r"a\.log goes on after byte 79.*settle"):
        plan(source, second)
    with pytest.raises(SeekFailed, match="byte 79"):
        source.check_seek(ends(second)[0])


def test_a_file_is_idle_when_it_was_read_and_rests(data: Path) -> None:
    source = file_source(data.parent)
    set_age(data, 3600)
    first = plan(source)
    assert first.idle == ()
    second = plan(source, first)
    assert second.idle == ends(second)
    set_age(data, 59)
    assert plan(source, first).idle == ()
    assert plan(file_source(data.parent, idle_timeout=None), first).idle == ()
    data.write_bytes(TEN + b'{"n":10}\n')
    set_age(data, 3600)
    assert plan(source, first).idle == ()


def test_a_file_that_waits_for_its_turn_is_not_idle(data: Path) -> None:
    (data.parent / "b.log").write_bytes(TEN * 2)
    for path in data.parent.iterdir():
        set_age(path, 3600)
    source = file_source(data.parent)
    first = plan(source, limits=Admission(max_records=20))
    assert extents(first) == {"a.log": (0, 80), "b.log": (0, 80)}
    second = plan(source, first, limits=Admission(max_records=1))
    assert extents(second) == {"a.log": (80, 80), "b.log": (80, 88)}
    assert second.idle == (FilePosition(path="a.log", byte_offset=80),)


# --- positions and plans of others ----------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["../a.log", "/etc/passwd", "x/../a.log", "./a.log", "a.log/", "x//a.log", ".a", "_a", ""],
)
def test_a_position_outside_is_refused(data: Path, path: str) -> None:
    source = file_source(data.parent)
    position = FilePosition(path=path, byte_offset=0)
    with pytest.raises(SeekFailed, match="not a path below"):
        source.check_seek(position)
    with pytest.raises(SeekFailed):
        source.plan(None, (position,), NO_LIMIT, NOW)
    with pytest.raises(SeekFailed):
        read(source, [whole(path, 5)])


def test_a_position_of_another_source_is_refused(data: Path) -> None:
    position = KafkaPosition(topic="t", partition=0, offset=0)
    with pytest.raises(SeekFailed, match="KafkaPosition"):
        file_source(data.parent).check_seek(position)


def test_a_position_within_a_record_is_refused(data: Path) -> None:
    source = file_source(data.parent)
    source.check_seek(FilePosition(path="a.log", byte_offset=16))
    with pytest.raises(SeekFailed, match="byte 17"):
        source.check_seek(FilePosition(path="a.log", byte_offset=17))


def test_a_damaged_fingerprint_is_refused(data: Path) -> None:
    source = file_source(data.parent)
    first = plan(source)
    text = first.identity.fingerprints["a.log"]  # type: ignore[union-attr]
    forged = SourcePlan(
        source_id=first.source_id,
        identity=type(first.identity)(fingerprints={"a.log": text[:-1] + "x"}),  # type: ignore[call-arg]
        ranges=first.ranges,
    )
    with pytest.raises(SourceReplaced, match="fingerprint"):
        plan(source, forged)


def test_a_pipe_put_in_a_files_place_does_not_hang(data: Path) -> None:
    source = file_source(data.parent)
    first = plan(source)
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(SeekFailed, match="not a regular file"):
        plan(source, first)

"""The description of a snapshot: what it refuses, and which rows stand where."""

from __future__ import annotations

import pytest
from msgspec import structs

from laminar_dagster.core.ids import FileName
from laminar_dagster.core.offsets import (
    KafkaPosition,
    MysqlPosition,
    PostgresPosition,
    SnapshotProgress,
    SourceRange,
    progress_of,
)
from laminar_dagster.core.snapshot import SnapshotFile, SourceSnapshot
from tests.golden.write_v1 import snapshot
from tests.unit.core.samples import kafka


def with_files(*rows: int) -> SourceSnapshot:
    files = tuple(
        SnapshotFile(name=FileName(f"{number}.arrow"), rows=count, size_bytes=9, sha256="0" * 64)
        for number, count in enumerate(rows)
    )
    return structs.replace(snapshot(), files=files)


def test_pieces_make_up_every_range() -> None:
    whole = with_files(3, 0, 1, 4)
    assert (whole.rows, whole.size_bytes) == (8, 36)
    rows = [(file.name, row) for file in whole.files for row in range(file.rows)]
    for start in range(9):
        for end in range(start, 9):
            found = [
                (piece.file.name, row)
                for piece in whole.pieces(start, end)
                for row in range(piece.start, piece.end)
            ]
            assert found == rows[start:end]


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (0, 9), (5, 4)])
def test_a_range_that_it_does_not_have_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="has 8 rows"):
        with_files(3, 5).pieces(start, end)


def test_a_snapshot_that_contradicts_itself_is_refused() -> None:
    known = structs.asdict(snapshot())
    within = PostgresPosition(lsn=1, slot="s", snapshot=SnapshotProgress(number=1, rows=0))
    twice = with_files(1).files * 2
    for changed, reason in (
        ({"position": within}, "not within a snapshot"),
        ({"position": kafka(1)}, "log of changes"),
        ({"files": twice}, "stands twice"),
        ({"taken_at": snapshot().taken_at.replace(tzinfo=None)}, "UTC"),
    ):
        with pytest.raises(ValueError, match=reason):
            SourceSnapshot(**(known | changed))


def test_a_snapshot_is_read_before_the_log_that_follows_it() -> None:
    def at(lsn: int, rows: int | None, number: int = 1) -> PostgresPosition:
        progress = None if rows is None else SnapshotProgress(number=number, rows=rows)
        return PostgresPosition(lsn=lsn, slot="s", snapshot=progress)

    run = [at(9, None), at(10, 0), at(10, 7), at(10, 0, 2), at(10, None), at(11, None)]
    assert sorted(run, key=progress_of) == run
    assert not SourceRange(start=run[1], end=run[4]).is_empty
    with pytest.raises(ValueError, match="backwards"):
        SourceRange(start=run[4], end=run[2])


def test_who_has_passed_it() -> None:
    end = structs.replace(snapshot(), position=PostgresPosition(lsn=10, slot="s"))
    within = SnapshotProgress(number=1, rows=10**9)
    assert end.is_behind(PostgresPosition(lsn=10, slot="s"))
    assert end.is_behind(PostgresPosition(lsn=11, slot="other"))
    assert not end.is_behind(PostgresPosition(lsn=10, slot="s", snapshot=within))
    assert not end.is_behind(KafkaPosition(topic="t", partition=0, offset=10**6))
    assert not end.is_behind(MysqlPosition(binlog_file="b.000009", binlog_position=9))

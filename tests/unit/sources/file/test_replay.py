"""Bad records go back into their directory, whole, in order, and once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.config.model import Column
from laminar_dagster.core.errors import (
    AlreadyReplayed,
    InvalidConfig,
    SeekFailed,
    SourceUnavailable,
)
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.options import FileOptions, Format
from laminar_dagster.sources.file.source import FileSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = "018bcfe5-6be8-7001-8002-000000000001"
COLUMNS = (Column("a", "int", nullable=False), Column("b", "string"))


def source(root: Path, kind: Format, pattern: str = "**/*") -> FileSource:
    return FileSource(SourceId("s"), root, COLUMNS, FileOptions(format=kind, pattern=pattern))


def bad_records(found: FileSource) -> pa.Table:
    plan = found.plan(None, (), Admission(), NOW)
    chunks = [chunk for part in plan.ranges for chunk in found.reader().read(part)]
    return pa.Table.from_batches([chunk.bad for chunk in chunks])


def test_lines_come_back_in_order_beside_where_they_were(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "1.ndjson").write_text('{"a": 1}\nnonsense\n{"a": 2}\n{"a": "x"}\n')
    (tmp_path / "x" / "2.ndjson").write_text("other\n")
    found = source(tmp_path, "ndjson")
    letters = bad_records(found)
    assert letters.num_rows == 3
    first, second = found.replay(BATCH, letters)
    assert (tmp_path / first).read_text() == 'nonsense\n{"a": "x"}\n'
    assert second.startswith("x/")
    assert (tmp_path / second).read_text() == "other\n"
    assert not [each.name for each in tmp_path.rglob(".*")]
    # And they are read again.
    assert bad_records(found).num_rows == 6


def test_a_header_is_kept(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("b,a\nx,1\ny,what\n")
    found = source(tmp_path, "csv")
    (path,) = found.replay(BATCH, bad_records(found))
    assert (tmp_path / path).read_text() == "b,a\ny,what\n"


def test_a_second_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.ndjson").write_text("nonsense\n")
    found = source(tmp_path, "ndjson")
    letters = bad_records(found)
    (path,) = found.replay(BATCH, letters)
    with pytest.raises(AlreadyReplayed, match=path):
        found.replay(BATCH, letters)


def test_a_replay_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    for name in ("1.ndjson", "2.ndjson"):
        (tmp_path / name).write_text(f"bad {name}\n")
    found = source(tmp_path, "ndjson")
    letters = bad_records(found)
    _, second = found.replay(BATCH, letters)
    (tmp_path / second).unlink()
    found.replay(BATCH, letters)
    assert (tmp_path / second).read_text() == "bad 2.ndjson\n"


def test_a_pattern_that_would_not_see_them(tmp_path: Path) -> None:
    (tmp_path / "in-1.ndjson").write_text("nonsense\n")
    found = source(tmp_path, "ndjson", "in-*.ndjson")
    with pytest.raises(InvalidConfig, match="does not take a file"):
        found.replay(BATCH, bad_records(found))
    assert [each.name for each in tmp_path.iterdir()] == ["in-1.ndjson"]


def test_a_header_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\nwhat,1\n")
    found = source(tmp_path, "csv")
    letters = bad_records(found)
    (tmp_path / "1.csv").unlink()
    with pytest.raises(SourceUnavailable, match="is gone"):
        found.replay(BATCH, letters)


def test_parquet_rows_cannot_come_back(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="Parquet"):
        source(tmp_path, "parquet").replay(BATCH, pa.table({"partition": ["a"]}))


@pytest.mark.parametrize("path", ["../out.ndjson", "/etc/x", "a/../../b", ".hidden/a"])
def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    letters = pa.table({"partition": [path], "position": [0], "raw": [b"x"]})
    with pytest.raises(SeekFailed):
        source(tmp_path, "ndjson").replay(BATCH, letters)

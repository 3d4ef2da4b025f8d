"""What is particular to Parquet."""

from __future__ import annotations

import datetime as dt
import errno
import os
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.model import Column
from laminar_dagster.core.errors import LaminarError, SeekFailed, SourceReplaced, SourceUnavailable
from laminar_dagster.core.offsets import FilePosition
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.source import FileSource
from tests.unit.sources.file.files import (
    Result,
    chunks,
    ends,
    extents,
    file_source,
    plan,
    read,
    whole,
)

COLUMNS = [("n", "bigint")]
MAP = pa.map_(pa.string(), pa.int32())


def _write(path: Path, columns: dict[str, Any], **options: Any) -> int:
    pyarrow.parquet.write_table(pa.table(columns), path, **options)
    return path.stat().st_size


def _source(root: Path, columns: Any = COLUMNS, **options: Any) -> FileSource:
    return file_source(root, columns, format="parquet", **options)


def _read(root: Path, columns: Any) -> Result:
    source = _source(root, columns)
    return read(source, plan(source).ranges)


def test_a_file_is_taken_whole_once_it_is_complete(tmp_path: Path) -> None:
    size = _write(tmp_path / "a", {"n": [1, 2, 3]})
    complete = (tmp_path / "a").read_bytes()
    source = _source(tmp_path)
    for cut in (0, 4, 11, 12, size // 2, size - 1):
        (tmp_path / "a").write_bytes(complete[:cut])
        assert plan(source).ranges == ()
    (tmp_path / "a").write_bytes(complete)
    first = plan(source)
    assert extents(first) == {"a": (0, size)}
    result = read(source, first.ranges)
    assert [row["n"] for row in result.rows] == [1, 2, 3]
    assert result.positions == [0, 1, 2]
    assert extents(plan(source, first)) == {"a": (size, size)}


def test_a_file_that_grew_was_replaced(tmp_path: Path) -> None:
    size = _write(tmp_path / "a", {"n": [1]})
    source = _source(tmp_path)
    stood = ends(plan(source))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes() + b"x")
    with pytest.raises(SourceReplaced, match="a Parquet file must not change"):
        source.plan(None, stood, Admission(), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(SeekFailed, match="read whole"):
        source.check_seek(FilePosition(path="a", byte_offset=size))


def test_limits_count_whole_files(tmp_path: Path) -> None:
    sizes = {name: _write(tmp_path / name, {"n": list(range(10))}) for name in "abc"}
    source = _source(tmp_path)
    first = plan(source, limits=Admission(max_records=15))
    assert [end for _, end in extents(first).values()] == [sizes["a"], 0, 0]
    second = plan(source, first, limits=Admission(max_bytes=2 * sizes["b"]))
    assert [end for _, end in extents(second).values()] == list(sizes.values())


def test_row_groups_are_splits(tmp_path: Path) -> None:
    size = _write(tmp_path / "a", {"n": list(range(100))}, row_group_size=10)
    for split in (1, 150, 400, size):
        source = _source(tmp_path, split_bytes=split)
        (part,) = plan(source).ranges
        splits = source.splits(part)
        assert len(splits) == (10 if split == 1 else len(splits))
        reader = source.reader()
        found = [[c.rows.num_rows for c in reader.read(each)] for each in splits]
        assert all(sum(rows) for rows in found)
        assert [row["n"] for row in read(source, [part]).rows] == list(range(100))


@given(cuts=st.lists(st.integers(0, 3000), max_size=5))
def test_a_file_cut_anywhere_gives_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    root = tmp_path_factory.mktemp("cut")
    size = _write(root / "a", {"n": list(range(20))}, row_group_size=3)
    source = _source(root)
    edges = sorted({0, size, *(cut for cut in cuts if cut < size)})
    parts = [whole("a", two, one) for one, two in pairwise(edges)]
    result = read(source, parts)
    assert [row["n"] for row in result.rows] == result.positions == list(range(20))


@pytest.mark.parametrize(
    ("stored", "declared", "value"),
    [
        (pa.array([1], pa.int32()), "bigint", 1),
        (pa.array([1], pa.uint32()), "bigint", 1),
        (pa.array([1], pa.int32()), "double", 1.0),
        (pa.array([1.5], pa.float32()), "double", 1.5),
        (pa.array(["x"], pa.large_string()), "string", "x"),
        (pa.array(["x"]).dictionary_encode(), "string", "x"),
        (pa.array([b"x"], pa.binary(1)), "binary", b"x"),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), "decimal(10, 2)", Decimal("1.50")),
        (
            pa.array([1_704_067_200_000_000_999], pa.timestamp("ns", "UTC")),
            "timestamp",
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        ),
        (
            pa.array([1_704_067_200_000], pa.timestamp("ms", "Europe/Paris")),
            "timestamp",
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        ),
        (pa.array([[1]], pa.list_(pa.int32())), "array<bigint>", [1]),
        (pa.array([{"a": 1}]), "struct<a: bigint>", {"a": 1}),
        (pa.array([[("k", 1)]], MAP), "map<string, bigint>", [("k", 1)]),
        (pa.nulls(1), "string", None),
    ],
)
def test_a_narrower_type_is_widened(
    tmp_path: Path, stored: pa.Array, declared: str, value: Any
) -> None:
    _write(tmp_path / "a", {"n": stored})
    result = _read(tmp_path, [("n", declared)])
    assert (result.rows, result.bad) == ([{"n": value}], [])


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.array([1], pa.int64()), "int"),
        (pa.array([1], pa.uint64()), "bigint"),
        (pa.array([1], pa.int64()), "double"),
        (pa.array([1.5]), "float"),
        (pa.array([1.0]), "bigint"),
        (pa.array(["1"]), "int"),
        (pa.array([1]), "string"),
        (pa.array([Decimal("1.55")]), "decimal(3, 1)"),
        (pa.array([0], pa.timestamp("us")), "timestamp"),
        (pa.array([0], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([{"a": 1}]), "struct<b: bigint>"),
    ],
)
def test_another_type_makes_the_file_one_bad_record(
    tmp_path: Path, stored: pa.Array, declared: str
) -> None:
    _write(tmp_path / "a", {"n": stored})
    result = _read(tmp_path, [("n", declared)])
    assert result.rows == []
    ((position, raw, reason),) = result.bad
    assert (position, raw) == (0, b"")
    assert "column `n` is" in reason


def test_missing_and_additional_columns(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"n": [1], "x": [9]})
    assert _read(tmp_path, [("n", "bigint"), ("m", "string")]).rows == [{"n": 1, "m": None}]
    result = _read(tmp_path, [Column("n", "bigint"), Column("m", "string", nullable=False)])
    assert [reason for _, _, reason in result.bad] == [
        "column `m` is not in the file, and must not be null"
    ]


def test_not_null(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"n": [1, None, 3, None], "s": list("abcd")}, row_group_size=2)
    result = _read(tmp_path, [Column("n", "bigint", nullable=False), Column("s", "string")])
    assert [row["n"] for row in result.rows] == [1, 3]
    assert result.positions == [0, 2]
    assert [(position, raw) for position, raw, _ in result.bad] == [
        (1, b'{"n": null, "s": "b"}'),
        (3, b'{"n": null, "s": "d"}'),
    ]


def test_damage_is_a_bad_record(tmp_path: Path) -> None:
    """The row groups that are whole are read."""
    size = _write(
        tmp_path / "a", {"n": list(range(100))}, row_group_size=50, write_page_checksum=True,
        compression="snappy",
    )  # fmt: skip
    data = bytearray((tmp_path / "a").read_bytes())
    data[4:40] = b"\xff" * 36
    (tmp_path / "a").write_bytes(bytes(data))
    result = read(_source(tmp_path), [whole("a", size)])
    assert [row["n"] for row in result.rows] == list(range(50, 100))
    ((position, _, reason),) = result.bad
    assert position == 0
    assert "row group 0 of 50 rows" in reason


def test_a_disk_that_fails_is_not_a_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = _write(tmp_path / "a", {"n": [1]})

    def fail(*_arguments: object) -> bytes:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(SourceUnavailable):
        read(_source(tmp_path), [whole("a", size)])


@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_a_damaged_file_raises_nothing_unnamed(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    root = tmp_path_factory.mktemp("damaged")
    _write(root / "a", {"n": list(range(20)), "s": ["x"] * 20}, row_group_size=7)
    data = bytearray((root / "a").read_bytes())
    data[place % len(data)] = byte
    del data[len(data) // 2 : len(data) // 2 + cut]
    (root / "a").write_bytes(bytes(data))
    source = _source(root, [("n", "bigint"), ("s", "string")])
    try:
        source.plan(None, (), Admission(max_records=5), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        result = read(source, [whole("a", len(data))])
        assert result.records == len(result.rows) + len(result.bad)
    except LaminarError as error:
        pytest.fail(f"damage is for the dead letters: {error}")


def test_a_row_can_be_set_aside_and_is_told_as_json(tmp_path: Path) -> None:
    columns = [Column("n", "bigint"), Column("at", "timestamp", nullable=False)]
    at = pa.array([1, None, 3, 4], pa.timestamp("us", "UTC"))
    size = _write(tmp_path / "a", {"n": [1, 2, 3, 4], "at": at}, row_group_size=3)
    source = _source(tmp_path, columns)
    first, second = chunks(source, [whole("a", size)])
    assert first.set_aside and second.set_aside
    (letter,) = first.set_aside({1: "no"}).to_pylist()
    assert (letter["partition"], letter["position"], letter["reason"]) == ("a", 2, "no")
    assert letter["raw"] == b'{"n": 3, "at": "1970-01-01 00:00:00.000003+00:00"}'
    (letter,) = second.set_aside({0: "no"}).to_pylist()
    assert letter["position"] == 3

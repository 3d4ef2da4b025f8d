"""What is particular to CSV."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.model import Column
from laminar_dagster.sources.file.blocks import records_of
from laminar_dagster.sources.file.framing import Block, newline_ends
from laminar_dagster.sources.formats.csv_records import CsvDecoder
from tests.unit.sources.file.files import decode, extents, file_source, plan, read

COLUMNS = [("n", "int"), ("s", "string")]


def _rows(root: Path, data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    result = decode(root, data, COLUMNS, format="csv", **options)
    assert result.bad == []
    return [tuple(row.values()) for row in result.rows]


def test_columns_are_found_by_the_header(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbfx,"s",n\r\n1,a,7\r\n2,"b,c",8\r\n'
    assert _rows(tmp_path, data) == [(7, "a"), (8, "b,c")]


def test_a_column_that_is_not_in_the_header_is_null(tmp_path: Path) -> None:
    assert _rows(tmp_path, b"n\n7\n") == [(7, None)]


def test_without_a_header_columns_stand_in_order(tmp_path: Path) -> None:
    assert _rows(tmp_path, b"7;a\n8;b\n", csv_header=False, csv_delimiter=";") == [
        (7, "a"),
        (8, "b"),
    ]


def test_every_split_knows_the_header(tmp_path: Path) -> None:
    """Also when blank lines stand before it."""
    (tmp_path / "data").write_bytes(b"\n\n\ns,n\na,1\nb,2\nc,3\n")
    source = file_source(tmp_path, COLUMNS, format="csv", split_bytes=1)
    planned = plan(source)
    assert len(source.splits(planned.ranges[0])) > 4
    result = read(source, planned.ranges)
    assert [row["n"] for row in result.rows] == [1, 2, 3]
    assert (result.records, result.bad) == (3, [])


@pytest.mark.parametrize(
    ("kind", "spelt"),
    [("float", b"1e39"), ("double", b"1e400"), ("decimal(5, 2)", b"1000"), ("tinyint", b"128")],
)
def test_numbers_that_are_too_large(tmp_path: Path, kind: str, spelt: bytes) -> None:
    result = decode(tmp_path, b"v\n1\n" + spelt + b"\n2\n", [("v", kind)], format="csv")
    assert [row["v"] for row in result.rows] == [1, 2]
    assert [raw for _, raw, _ in result.bad] == [spelt]


def test_null_and_empty(tmp_path: Path) -> None:
    assert _rows(tmp_path, b'n,s\n1,\n2,""\n,x\n') == [(1, None), (2, ""), (None, "x")]
    data = b'n,s\nNULL,NULL\n1,"NULL"\n2,\n'
    assert _rows(tmp_path, data, csv_null="NULL") == [(None, None), (1, "NULL"), (2, "")]


def test_quoted_newlines_and_quotes(tmp_path: Path) -> None:
    data = b'n,s\n1,"a\nb"\n2,"c\r\n"\n3,"say ""hi"""\n4,""""\n'
    assert _rows(tmp_path, data) == [(1, "a\nb"), (2, "c\r\n"), (3, 'say "hi"'), (4, '"')]


def test_an_open_quote_holds_the_plan_back(tmp_path: Path) -> None:
    """A newline within quotes does not end a record."""
    (tmp_path / "data").write_bytes(b'n,s\n1,a\n2,"b\nc\n')
    source = file_source(tmp_path, COLUMNS, format="csv")
    first = plan(source)
    assert extents(first) == {"data": (0, 8)}
    with (tmp_path / "data").open("ab") as file:
        file.write(b'd"\n3,e\n')
    second = plan(source, first)
    assert [row["s"] for row in read(source, second.ranges).rows] == ["b\nc\nd", "e"]


def test_a_quote_that_never_ends_spoils_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b'n,s\n1,"a\n' + b"2,b\n" * 10)
    source = file_source(tmp_path, COLUMNS, format="csv", max_record_bytes=20)
    planned = plan(source)
    result = read(source, planned.ranges)
    assert [row["n"] for row in result.rows] == [2] * 10
    assert [(position, raw) for position, raw, _ in result.bad] == [(4, b'1,"a')]


def test_lines_only(tmp_path: Path) -> None:
    result = decode(
        tmp_path, b'n,s\n1,"a\n2,b\n3,"c"\n', COLUMNS, format="csv", csv_multiline=False
    )
    assert [row["n"] for row in result.rows] == [2, 3]
    assert [(position, raw) for position, raw, _ in result.bad] == [(4, b'1,"a')]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1", "1 field, 2 expected"),
        (b"1,a,b", "3 fields, 2 expected"),
        (b'1,"a",b', "3 fields, 2 expected"),
        (b'1,5" pipe and 6" pipe', "a quote"),
        (b'1,"a"b', "a quote"),
        (b'1,"a"b"', "a quote"),
        (b'1,a""b', "a quote"),
        (b'a"b,"c', "a quote"),
        (b"x,a", "`n`"),
        (b"1.5,a", "`n`"),
        (b'"",a', "`n`"),
        (b"2147483648,a", "`n`"),
        (b"1,\xff", "not UTF-8"),
        (b"1\r2,a", ""),
        (b'1,"a"\rb', ""),
    ],
)
@pytest.mark.parametrize("multiline", [True, False])
def test_a_bad_record_is_found_with_its_place(
    tmp_path: Path, line: bytes, reason: str, multiline: bool
) -> None:
    found = set()
    for before, after in ((0, 0), (1, 2), (30, 700)):
        head = b"n,s\n" + b'1,"x"\n' * before
        data = head + line + b"\n" + b"2,y\n" * after
        result = decode(tmp_path, data, COLUMNS, format="csv", csv_multiline=multiline)
        assert [row["n"] for row in result.rows] == [1] * before + [2] * after
        ((position, raw, why),) = result.bad
        assert (position, raw) == (len(head), line)
        found.add(why)
    (why,) = found
    assert reason in why


@pytest.mark.parametrize(
    ("kind", "spelt", "value"),
    [
        ("boolean", b"true", True),
        ("smallint", b" 7 ", 7),
        ("float", b"0.5", 0.5),
        ("double", b"1e3", 1000.0),
        ("decimal(5, 2)", b"1.5", Decimal("1.50")),
        ("string", b" x ", " x "),
        ("binary", b"aGk=", b"hi"),
        ("date", b"2024-02-29", dt.date(2024, 2, 29)),
        ("timestamp", b"2024-01-01 00:00:00", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("timestamp", b"2024-01-01T02:00:00.0000009+02", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_values_of_every_type(tmp_path: Path, kind: str, spelt: bytes, value: Any) -> None:
    result = decode(tmp_path, b"v,w\n" + spelt + b",\n,\n?,\n", [("v", kind)], format="csv")
    rows = [{"v": value}, {"v": None}]
    assert result.rows == ([*rows, {"v": "?"}] if kind == "string" else rows)
    assert [raw for _, raw, _ in result.bad] == ([] if kind == "string" else [b"?,"])


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"n,s,n", "column `n` twice"),
        (b"a,b", "none of the declared columns"),
        (b'n,"s', "header cannot be read"),
        (b"n,\xff", "header cannot be read"),
    ],
)
def test_a_header_that_cannot_be_used(tmp_path: Path, header: bytes, reason: str) -> None:
    """Every record of the file is set aside, and says so."""
    result = decode(
        tmp_path, header + b"\n1,a,3\n2,b\n", COLUMNS, format="csv", csv_multiline=False
    )
    assert result.rows == []
    assert [raw for _, raw, _ in result.bad] == [b"1,a,3", b"2,b"]
    assert all(reason in why for _, _, why in result.bad)


def test_not_null_and_missing(tmp_path: Path) -> None:
    columns = [Column("n", "int"), Column("m", "int", nullable=False)]
    result = decode(tmp_path, b"n\n1\n2\n", columns, format="csv")
    assert [why for _, _, why in result.bad] == ["`m` must not be null"] * 2


def test_a_byte_order_mark_elsewhere_is_a_character(tmp_path: Path) -> None:
    """Also where a chunk begins with it."""
    mark = b"\xef\xbb\xbf"
    assert _rows(tmp_path, b"s,n\nx,0\n" + mark + b"a,1\n")[1] == (1, "\ufeffa")
    source = file_source(tmp_path, COLUMNS, format="csv", split_bytes=1)
    (row,) = read(source, source.splits(plan(source).ranges[0])[2:]).rows
    assert row == {"n": 1, "s": "\ufeffa"}


@given(st.lists(st.text(st.sampled_from('ab1,"\r \x00ä'), max_size=9), min_size=1, max_size=6))
def test_a_record_is_judged_without_its_neighbours(lines: list[str]) -> None:
    schema = file_source(Path("/"), COLUMNS).schema
    data = b"".join(line.encode() + b"\n" for line in lines)
    together = CsvDecoder(schema, ",", "").decode(records_of(Block(50, data, newline_ends(data))))
    rows, positions, bad = [], [], []
    place = 50
    for line in lines:
        text = line.encode() + b"\n"
        alone = CsvDecoder(schema, ",", "").decode(
            records_of(Block(place, text, newline_ends(text)))
        )
        rows += alone.rows.to_pylist()
        positions += alone.positions.tolist()
        bad += alone.bad
        place += len(text)
    assert together.rows.to_pylist() == rows
    assert together.positions.tolist() == positions
    assert together.bad == bad

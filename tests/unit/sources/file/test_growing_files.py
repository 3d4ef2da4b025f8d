"""Wherever a growing file is caught, and wherever a range is cut, the records are the same."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.directory import Directory
from laminar_dagster.sources.file.framing import Block, LineFraming, Oversize, QuotedFraming
from tests.unit.sources.file.files import Result, extents, file_source, plan, read, whole

NDJSON = b'{"n":1,"s":"a"}\r\n\n{"n":2,"s":"\xc3\xa4\\n"}\nnot json\n{"n":3}\n  \n{"n":null}\n'
CSV = b'n,s\n1,"a\nb"\n2,"say ""hi""\r\n"\r\n\nx,y\n3,\n"4","\n\n"\n'
COLUMNS = [("n", "int"), ("s", "string")]
FORMATS = [
    pytest.param(NDJSON, {"format": "ndjson"}, id="ndjson"),
    pytest.param(CSV, {"format": "csv"}, id="csv"),
    pytest.param(CSV, {"format": "csv", "csv_multiline": False}, id="csv lines"),
]


@pytest.mark.parametrize(("data", "options"), FORMATS)
def test_a_file_that_grows_byte_by_byte(
    tmp_path: Path, data: bytes, options: dict[str, Any]
) -> None:
    path = tmp_path / "data"
    source = file_source(tmp_path, COLUMNS, **options)
    expected = _whole(tmp_path, data, options)
    chance = random.Random(len(data))
    for patience in (1, 3, 20):
        path.write_bytes(b"")
        previous: SourcePlan | None = None
        rows, positions, bad = [], [], []
        for place in range(len(data)):
            with path.open("ab") as file:
                file.write(data[place : place + 1])
            if chance.randrange(patience) and place < len(data) - 1:
                continue
            previous = plan(source, previous)
            part = read(source, previous.ranges)
            rows += part.rows
            positions += part.positions
            bad += part.bad
        assert (rows, positions, bad) == (expected.rows, expected.positions, expected.bad)
        assert previous and extents(previous)["data"][1] == len(data)


def _whole(root: Path, data: bytes, options: dict[str, Any]) -> Result:
    (root / "data").write_bytes(data)
    result = read(file_source(root, COLUMNS, **options), [whole("data", len(data))])
    assert result.rows and result.bad
    assert result.bytes == len(data)
    return result


@pytest.mark.parametrize(("data", "options"), FORMATS)
def test_a_torn_line_is_not_read(tmp_path: Path, data: bytes, options: dict[str, Any]) -> None:
    """At every byte: the plan ends with a newline, and never moves past the torn tail."""
    source = file_source(tmp_path, COLUMNS, **options)
    for size in range(len(data) + 1):
        (tmp_path / "data").write_bytes(data[:size])
        end = extents(plan(source)).get("data", (0, 0))[1]
        assert end <= size
        assert end == 0 or data[end - 1 : end] == b"\n"
        # What is left out has no newline that ends a record.
        if options == {"format": "ndjson"}:
            assert b"\n" not in data[end:size]


texts = st.text(st.sampled_from('ab,"\n\r;ä '), max_size=8)


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    """CSV as one would write it, mostly."""
    records: list[str] = []
    for n, text in draw(st.lists(st.tuples(st.integers(-9, 9), texts), max_size=12)):
        quoted = '"' + text.replace('"', '""') + '"'
        field = quoted if draw(st.booleans()) or set(text) & set(',"\n\r') else text
        ending = draw(st.sampled_from(["\n", "\r\n"]))
        records.append(f"{n},{field}{ending}")
    odd = draw(st.sampled_from(["", "\n", "x\n"]))
    records.insert(draw(st.integers(0, len(records))), odd)
    return "".join(records).encode()


@st.composite
def json_files(draw: st.DrawFn) -> bytes:
    lines = st.one_of(
        st.integers(-9, 9).map(lambda n: b'{"n": %d, "s": "x"}' % n),
        st.sampled_from([b"", b"{", b"null", b'{"n":"x"}', b'{"n":1}{"n":2}', b'{"s":"\xff"}']),
        st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"")),
    )
    return b"".join(line + b"\n" for line in draw(st.lists(lines, max_size=12)))


@given(data=st.data())
@pytest.mark.parametrize("kind", ["ndjson", "csv", "csv lines"])
def test_the_answer_does_not_depend_on_the_cuts(kind: str, data: st.DataObject) -> None:
    content = data.draw(json_files() if kind == "ndjson" else csv_files())
    options: dict[str, Any] = {"format": kind.split()[0]}
    if options["format"] == "csv":
        options |= {"csv_header": False, "csv_multiline": kind == "csv"}
    limits = Admission(
        max_bytes=data.draw(st.none() | st.integers(1, 40)),
        max_records=data.draw(st.none() | st.integers(1, 4)),
    )
    split = data.draw(st.none() | st.integers(1, 20))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "data").write_bytes(content)
        at_once = read(file_source(root, COLUMNS, **options), [whole("data", len(content))])
        source = file_source(root, COLUMNS, split_bytes=split, **options)
        previous, rows, positions, bad, size = None, [], [], [], 0
        while not previous or size < len(content):
            previous = plan(source, previous, limits)
            part = read(source, previous.ranges)
            assert part.bytes or not content
            assert limits.max_records is None or part.records <= limits.max_records
            rows += part.rows
            positions += part.positions
            bad += part.bad
            size += part.bytes
            if not content:
                break
    assert (rows, positions, bad) == (at_once.rows, at_once.positions, at_once.bad)


@given(content=st.text(st.sampled_from('a"\n,'), max_size=60), limit=st.integers(1, 12))
def test_quoted_records_end_where_a_reader_of_single_bytes_says(content: str, limit: int) -> None:
    """Also when quotes are never closed: a record is cut to its first line then."""
    data = content.encode()
    with TemporaryDirectory() as folder:
        (Path(folder) / "data").write_bytes(data)
        with Directory("clicks", Path(folder), "*").open("data") as file:
            for block in (1, 2, 7, 100):
                framing = QuotedFraming(limit, block)
                expected = _slow_ends(data, limit)
                end = framing.complete_end(file, 0)
                assert end == (expected[-1] if expected else 0)
                assert _ends(list(framing.blocks(file, 0, end))) == expected
                for cut in expected[1:3]:
                    assert _ends(list(framing.blocks(file, 0, cut))) == [
                        each for each in expected if each <= cut
                    ]


def _ends(blocks: list[Block | Oversize]) -> list[int]:
    found: list[int] = []
    for block in blocks:
        if isinstance(block, Block):
            found += [block.start + int(each) for each in block.ends]
        else:
            found.append(block.end)
    return found


def _slow_ends(data: bytes, limit: int) -> list[int]:
    ends: list[int] = []
    start = 0
    while start < len(data):
        quotes, end = 0, None
        for place in range(start, min(len(data), start + limit)):
            quotes += data[place] == ord('"')
            if data[place] == ord("\n") and quotes % 2 == 0:
                end = place + 1
                break
        if end is None:
            newline = data.find(b"\n", start)
            if len(data) - start < limit or newline < 0:
                break
            end = newline + 1
        ends.append(end)
        start = end
    return ends


@given(content=st.binary(max_size=60).map(lambda raw: raw.replace(b"\x01", b"\n")))
def test_lines_end_where_they_end(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "data").write_bytes(content)
        with Directory("clicks", Path(folder), "*").open("data") as file:
            for block in (1, 3, 100):
                framing = LineFraming(5, block)
                end = framing.complete_end(file, 0)
                assert end == content.rfind(b"\n") + 1
                found = _ends(list(framing.blocks(file, 0, end)))
                assert found == [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]

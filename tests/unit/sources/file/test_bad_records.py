"""Records that cannot be decoded are set aside, each with its place; the others are not harmed."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.model import Column
from laminar_dagster.sources.file.blocks import records_of
from laminar_dagster.sources.file.framing import Block, newline_ends
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from tests.unit.sources.file.files import chunks, decode, file_source, whole

UTC = dt.UTC
NUMBER = [("n", "int")]
LONG = "12345678901234567890.0123456789"
NEW_YEAR = dt.date(2024, 1, 1)
NANOS = dt.datetime(2024, 1, 1, microsecond=123456, tzinfo=UTC)
HALF = dt.datetime(2024, 1, 1, microsecond=500000, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"null", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"garbage", "not a JSON object"),
        (b'{"n":1', "not a JSON object"),
        (b'{"n":1,}', "not JSON"),
        (b'{"n":1}{"n":2}', "not JSON: Extra data"),
        (b'{"n":1} {"n":2}', "not JSON: Extra data"),
        (b'{"n":{"x":1}', "not JSON"),
        (b'{"n":"1"}', "`n`: text where int32"),
        (b'{"n":true}', "`n`: a boolean where int32"),
        (b'{"n":1.5}', "`n`: a number where int32"),
        (b'{"n":2147483648}', "out of the range"),
        (b'{"n":-2147483649}', "out of the range"),
        (b'{"n":1,"n":2}', "twice"),
        (b'{"n":1,"x":"\xff"}', "not UTF-8"),
        (b'{"n":1,"x":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"n":1,"x":"a\tb"}', "not JSON"),
        (b'{"n":1,"x":"\x00"}', "NUL"),
        (b'{"n":1}\x00}', "NUL"),
        (b'\xef\xbb\xbf{"n":1}', "not a JSON object"),
        (b'{"n":NaN}', "`n`"),
    ],
)
def test_a_bad_line_is_found_with_its_place(tmp_path: Path, line: bytes, reason: str) -> None:
    """First, last, in the middle or alone: always the same verdict on it, and on its neighbours."""
    good = b'{"n":%d}'
    found = set()
    for before, after in ((0, 0), (0, 3), (3, 0), (40, 700)):
        head = b"".join(good % n + b"\n" for n in range(before))
        # The very first bytes of a file are another matter: a byte order mark may stand there.
        head = head or b"\n"
        data = head + line + b"\r\n" + b"".join(good % n + b"\n" for n in range(after))
        result = decode(tmp_path, data, NUMBER)
        assert [row["n"] for row in result.rows] == [*range(before), *range(after)]
        ((position, raw, why),) = result.bad
        assert (position, raw) == (len(head), line)
        found.add(why)
    (why,) = found
    assert reason in why


@pytest.mark.parametrize(
    ("kind", "spelt", "value"),
    [
        ("boolean", b"true", True),
        ("tinyint", b"-128", -128),
        ("bigint", b"9223372036854775807", 2**63 - 1),
        ("float", b"0.5", 0.5),
        ("double", b"1e3", 1000.0),
        ("double", b"Infinity", math.inf),
        ("decimal(30, 10)", b"12345678901234567890.0123456789", Decimal(LONG)),
        ("decimal(5, 2)", b'"1.25"', Decimal("1.25")),
        ("string", b'"\\u00e4\\n"', "ä\n"),
        ("binary", b'"aGk="', b"hi"),
        ("date", b'"2024-02-29"', dt.date(2024, 2, 29)),
        ("timestamp", b'"2024-01-01T02:00:00+02:00"', dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", b'"2024-01-01 00:00:00"', dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("timestamp", b'"2024-01-01T00:00:00.123456789Z"', NANOS),
        ("timestamp_ntz", b'"2024-01-01T00:00:00.5"', HALF),
        ("array<date>", b'["2024-01-01",null]', [dt.date(2024, 1, 1), None]),
        ("struct<a: int, b: array<string>>", b'{"a":1,"c":9}', {"a": 1, "b": None}),
        ("map<string, int>", b'{"x":1,"y":null}', [("x", 1), ("y", None)]),
        ("map<int, array<double>>", b'{"7":[0.5]}', [(7, [0.5])]),
        ("map<string, decimal(30, 10)>", b'{"x":' + LONG.encode() + b"}", [("x", Decimal(LONG))]),
        ("struct<m: map<string, date>>", b'{"m":{"d":"2024-01-01"}}', {"m": [("d", NEW_YEAR)]}),
    ],
)
def test_values_of_every_type(tmp_path: Path, kind: str, spelt: bytes, value: Any) -> None:
    """As a value, as null, and as a missing field; with a bad neighbour and without."""
    lines = [b'{"v":%s}' % spelt, b'{"v":null}', b"{}"]
    expected = [{"v": value}, {"v": None}, {"v": None}]
    result = decode(tmp_path, b"\n".join(lines) + b"\n", [("v", kind)])
    assert (result.rows, result.bad) == (expected, [])
    result = decode(tmp_path, b"\n".join([*lines, b'{"v":[[]]}']) + b"\n", [("v", kind)])
    assert result.rows == expected
    assert len(result.bad) == 1


@pytest.mark.parametrize(
    ("kind", "spelt"),
    [
        ("float", b"1e39"),
        ("double", b"1e400"),
        ("double", b'"1.5"'),
        ("boolean", b'"true"'),
        ("string", b"1"),
        ("decimal(5, 2)", b"1.255"),
        ("decimal(5, 2)", b"1000"),
        ("array<decimal(5, 2)>", b"[1000]"),
        ("binary", b'"a"'),
        ("date", b'"2024-02-30"'),
        ("date", b"1"),
        ("timestamp", b'"yesterday"'),
        ("timestamp", b'"2024-02-30T00:00:00Z"'),
        ("timestamp", b"1704067200"),
        ("array<int>", b'[1,"x"]'),
        ("array<date>", b'["x"]'),
        ("struct<a: int>", b'{"a":"x"}'),
        ("struct<a: int>", b"[]"),
        ("map<string, int>", b'{"a":"x"}'),
        ("map<string, int>", b'{"a":1,"a":2}'),
        ("map<int, int>", b'{"a":1}'),
        ("map<string, int>", b"[]"),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, kind: str, spelt: bytes) -> None:
    bad = b'{"v":%s}' % spelt
    alone = decode(tmp_path, bad + b"\n", [("v", kind)])
    assert [(position, raw) for position, raw, _ in alone.bad] == [(0, bad)]
    among = decode(tmp_path, b'{"v":null}\n' + bad + b"\n{}\n", [("v", kind)])
    assert among.bad == [(11, bad, alone.bad[0][2])]
    assert among.rows == [{"v": None}, {"v": None}]


def test_not_null(tmp_path: Path) -> None:
    columns = [Column("n", "int", nullable=False), Column("s", "string")]
    data = b'{"n":1}\n{"s":"x"}\n{"n":null}\n{"n":2}\n'
    result = decode(tmp_path, data, columns)
    assert [row["n"] for row in result.rows] == [1, 2]
    assert result.positions == [0, 29]
    assert [(position, why) for position, _, why in result.bad] == [
        (8, "`n` must not be null"),
        (18, "`n` must not be null"),
    ]


def test_a_byte_order_mark_and_blank_lines(tmp_path: Path) -> None:
    result = decode(tmp_path, b'\xef\xbb\xbf{"n":1}\r\n\r\n \t\n{"n":2}', NUMBER)
    assert [row["n"] for row in result.rows] == [1, 2]
    assert result.positions == [3, 17]
    assert (result.records, result.bad) == (2, [])


def test_a_line_that_is_too_long_is_not_taken_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beginning is kept."""
    monkeypatch.setattr("laminar_dagster.sources.file.framing.SHOWN_BYTES", 10)
    long = b'{"n":1,"x":"' + b"x" * 100 + b'"}'
    data = b'{"n":1}\n' + long + b'\n{"n":2}\n'
    result = decode(tmp_path, data, NUMBER, max_record_bytes=50)
    assert [row["n"] for row in result.rows] == [1, 2]
    ((position, raw, reason),) = result.bad
    assert (position, raw) == (8, long[:10])
    assert "115 bytes" in reason
    assert result.bytes == len(data)


def test_ten_thousand_deep(tmp_path: Path) -> None:
    deep = b'{"n":1,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}\n"
    for columns in (NUMBER, [*NUMBER, ("m", "map<string, int>")]):
        result = decode(tmp_path, b'{"n":0}\n' + deep + b'{"n":2}\n', columns)
        assert result.records == 3
        assert result.rows[0]["n"] == 0 and result.rows[-1]["n"] == 2


moments = st.from_regex(
    r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]"
    r"([T ][0-2][0-9](:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?)?(Z|[+-]0[0-9](:?[03]0)?)?)?",
    fullmatch=True,
)


@given(st.lists(moments | st.text(max_size=5), min_size=1, max_size=6))
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_both_ways_to_read_times_agree(kind: str, texts: list[str]) -> None:
    """The lenient way takes what the plain one takes, with the same result."""
    schema = file_source(Path("/"), [("t", kind)]).schema
    lines = b"".join(_as_json(text) + b"\n" for text in texts)
    block = Block(0, lines, newline_ends(lines))
    plain = JsonDecoder(schema).decode(records_of(block))
    lenient = JsonDecoder(schema, _times_as_text=True).decode(records_of(block))
    assert plain.rows.to_pylist() == lenient.rows.to_pylist()
    assert plain.bad == lenient.bad
    one_by_one = []
    for text in texts:
        line = _as_json(text) + b"\n"
        one_by_one += (
            JsonDecoder(schema)
            .decode(records_of(Block(0, line, newline_ends(line))))
            .rows.to_pylist()
        )
    assert plain.rows.to_pylist() == one_by_one


def _as_json(text: str) -> bytes:
    return json.dumps({"t": text}).encode()


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_random_bytes_are_bad_records_and_nothing_worse(lines: list[bytes]) -> None:
    """Every record is accounted for, at its place."""
    columns = [("n", "int"), ("s", "string"), ("t", "timestamp"), ("m", "map<string, int>")]
    schema = file_source(Path("/"), columns).schema
    data = b"".join(b"{" + line.replace(b"\n", b"") + b"}\n" for line in lines)
    if data:
        outcome = JsonDecoder(schema).decode(records_of(Block(100, data, newline_ends(data))))
        starts = [100, *(100 + newline_ends(data)[:-1])]
        found = sorted([*outcome.positions, *(bad.position for bad in outcome.bad)])
        assert found == starts


# --- rows that are found to be bad later --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "data", "raw"),
    [
        ({}, b'{"n":1}\nno\n\n{"n":2}\r\n{"n":3}', [(12, b'{"n":2}'), (21, b'{"n":3}')]),
        (
            {"format": "csv"},
            b'n,t\n1,a\nno,b\n2,"x\ny"\n3,\n',
            [(13, b'2,"x\ny"'), (21, b"3,")],
        ),
    ],
)
def test_a_row_can_be_set_aside_as_it_stands_in_the_file(
    tmp_path: Path, options: dict[str, str], data: bytes, raw: list[tuple[int, bytes]]
) -> None:
    """So that it can be put back: its bytes without the end of the line."""
    (tmp_path / "data").write_bytes(data)
    source = file_source(tmp_path, [*NUMBER, ("t", "string")], **options)
    (chunk,) = chunks(source, [whole("data", len(data))])
    assert chunk.rows.column("n").to_pylist() == [1, 2, 3]
    assert chunk.set_aside
    found = chunk.set_aside({1: "one", 2: "two"})
    assert found.schema == chunk.bad.schema
    assert found.to_pylist() == [
        {"partition": "data", "position": at, "raw": text, "reason": why, "is_whole": True}
        for (at, text), why in zip(raw, ("one", "two"), strict=True)
    ]

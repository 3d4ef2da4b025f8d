"""The compiled columns of JSON beside the parser that has the last word: always its answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_dagster.sources.formats.json_columns import JsonColumns
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.records import Outcome, Records
from tests.services.compiled import require_compiled, without_compiled

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("n", pa.int32()),
        ("long", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        pa.field("needed", pa.int64(), nullable=False),
    ]
)

# By column, what is read at once.
TAKEN = {
    "flag": ["true", "false", "null"],
    "tiny": ["0", "127", "-128"],
    "short": ["32767", "-32768"],
    "n": ["7", "2147483647", "-2147483648", " \t\r7 "],
    "long": ["999999999999999999", "-999999999999999999"],
    "single": ["0.1", "3.4e38", "-0.0", "16777219.5"],
    "double": [
        *("0", "-0", "-0.0", "730.0", "1e3", "1E-7", "0.1", "9007199254740993", "1.7e308"),
        *("2.2250738585072014e-308", "0.30000000000000004", "123456789012345678901234567890"),
        *("8.5e-22", "1234567890.123456789", "0.000000000000000000001"),
    ],
    "text": ['""', '"a"', '"grün 水 😀"', '"1234567"', '"12345678"', '"123456789"', "null"],
    "at": [
        *('"2026-01-01T00:00:00Z"', '"2026-01-01 00:00:00"', '"2024-02-29T23:59:59.999999Z"'),
        *('"1969-12-31T23:59:59.5Z"', '"2026-01-01T00:00:00.123"', '"9999-12-31T23:59:59Z"'),
        *('"2026-01-01T00:30:00+05:30"', '"2026-01-01T23:30:00-01:00"', '"1000-01-01T00:00:00Z"'),
    ],
    "local": ['"2026-01-01T00:00:00Z"', '"2026-01-01 00:00:00.25"', '"1899-03-01T00:00:00"'],
    "day": ['"2024-02-29"', '"1970-01-01"', '"1900-03-01"', '"2000-02-29"'],
    "price": ["0", "1.5", "-12345678.99", '"12.34"', "99999999.99", "-0"],
    "other": ['{"a":[1,{"b":null}],"a":true}', "[]", "{}", '"x"', "-1.5", "null", "[[[]]]"],
}
# What is left to the parser, whatever it says.
LEFT = {
    "flag": ["1", '"true"', "True", "tru"],
    "tiny": ["128", "-129", "1.0", "1e1", "-0", "01", "+1", "true"],
    "n": ["2147483648", '"1"', "", "-", "1.", ".5", "NaN", "{}", "[1]"],
    "long": ["9223372036854775808", "12345678901234567890"],
    "single": ["1e39", "Infinity", "16777217", "16777217.0000000001", "1e-40", "3.5e38"],
    "double": ["1e309", "-1e400", "NaN", "Inf", '"1"', "0x1", "1e", "1e+", "--1", "1" * 70],
    "text": ['"a\\nb"', '"\\u0041"', '"a\tb"', "1", '"open', '"\x7f\\"'],
    "at": [
        *(
            '"2026-02-29T00:00:00Z"',
            '"2026-01-01"',
            '"2026-01-01T00:00Z"',
            '"2026-13-01T00:00:00Z"',
        ),
        *('"2026-01-01T24:00:00Z"', '"2026-01-01T00:00:60Z"', '"2026-01-01T00:00:00.1234567Z"'),
        *('"2026-01-01T00:00:00z"', '"2026-01-01T00:00:00+0100"', '"0999-01-01T00:00:00Z"'),
        *('"2026-01-01T00:00:00.Z"', '" 2026-01-01T00:00:00Z"', "1767225600000"),
    ],
    "day": ['"1900-02-29"', '"2024-2-1"', '"2024-01-01T00:00:00"', '"2024-00-10"', "19000"],
    "price": ["0.123", "100000000", "1e2", '"x"', '" 1"', "1.50000000000000000000"],
    "other": ["[1,]", '{"a":}', "[1", '"\\x"', "nul", "[" * 200 + "]" * 200],
}


def records_of(lines: Sequence[bytes]) -> Records:
    lengths = np.array([len(line) + 1 for line in lines], np.int64)
    ends = np.cumsum(lengths)
    positions = np.arange(len(lines), dtype=np.int64) * 10
    return Records(b"".join(line + b"\n" for line in lines), ends - lengths, ends, positions)


def line_of(values: dict[str, str]) -> bytes:
    fields = {"needed": "1", **values}
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode()


def unsure(lines: Sequence[bytes]) -> list[bool]:
    """Of which it is not sure; lines that are certain stand beside them, so that it is used."""
    require_compiled()
    columns = JsonColumns.of(SCHEMA)
    assert columns is not None
    padded = [*lines, *[b'{"needed":1}'] * (len(lines) + 1)]
    found = columns.read(records_of(padded))
    assert found is not None
    assert not found[1][len(lines) :].any()
    return [bool(each) for each in found[1][: len(lines)]]


def same(one: Outcome, other: Outcome) -> None:
    one.rows.validate(full=True)
    assert one.rows.schema == other.rows.schema
    # As text: to Arrow a zero equals one of the other sign, and NaN not even itself.
    assert str(one.rows.to_pylist()) == str(other.rows.to_pylist())
    assert one.positions.tolist() == other.positions.tolist()
    assert one.bad == other.bad


def require_same(lines: Sequence[bytes]) -> None:
    decoder = JsonDecoder(SCHEMA)
    same(decoder.decode(records_of(lines)), decoder.decode_thoroughly(records_of(lines)))


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_has_the_same_value(name: str) -> None:
    lines = [line_of({name: each}) for each in TAKEN[name]]
    assert unsure(lines) == [False] * len(lines)
    decoder = JsonDecoder(SCHEMA)
    for line in lines:
        thorough = decoder.decode_thoroughly(records_of([line]))
        assert not thorough.bad, thorough.bad
        same(decoder.decode(records_of([line])), thorough)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_is_left_whole(name: str) -> None:
    lines = [line_of({name: each}) for each in LEFT[name]]
    assert unsure(lines) == [True] * len(lines)
    require_same([*lines, *[line_of({"n": str(each)}) for each in range(2 * len(lines))]])


@pytest.mark.parametrize(
    ("line", "is_left"),
    [
        (b"{}", False),
        (b' { "n" : 1 , "needed" : 2 } \r', False),
        (b'{"n":null,"needed":1}', False),
        (b'{"needed":1,"n":1,"n":1}', True),
        (b'{"needed":1,"n":null,"n":1}', True),
        (b'{"needed":1,"\\u006e":1}', True),
        (b'{"needed":1}{"needed":2}', True),
        (b'{"needed":1},', True),
        (b'{"needed":1,}', True),
        (b'{"needed":1', True),
        (b"{needed:1}", True),
        (b'\xef\xbb\xbf{"needed":1}', True),
        (b'{"needed":1,"x":"\xff"}', True),
        (b'{"needed":1,"x":"\xed\xa0\x80"}', True),
        (b'{"needed":1,"x":"\xc0\x80"}', True),
        (b'{"needed":1,"x":"\xf4\x90\x80\x80"}', True),
        (b'{"needed":1,"x":"\xe6\xb0"}', True),
        (b'{"needed":1,"x":"\x00"}', True),
        (b'{"needed":1}\x00', True),
        (b"null", True),
        (b"", True),
    ],
)
def test_whole_records(line: bytes, is_left: bool) -> None:
    assert unsure([line]) == [is_left]
    require_same([line])
    require_same([b'{"needed":1}', line, b'{"needed":2,"text":"x"}'])


spellings = st.sampled_from(
    [(name, each) for table in (TAKEN, LEFT) for name, found in table.items() for each in found]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
).map(json.dumps)
fields = st.dictionaries(
    st.sampled_from([*SCHEMA.names, "other"]), anything, max_size=4
) | st.lists(spellings, max_size=4).map(dict)
lines_of_all_kinds = st.lists(
    fields.map(line_of) | fields.map(line_of).flatmap(lambda line: st.sampled_from(_damaged(line))),
    max_size=12,
)


def _damaged(line: bytes) -> list[bytes]:
    """A line cut off, and with a byte of it changed, somewhere."""
    places = range(0, len(line), max(1, len(line) // 7))
    cut = [line[:place] for place in places]
    changed = [
        line[:place] + bytes([byte]) + line[place + 1 :] for place in places for byte in b'"{0\\'
    ]
    return [*cut, *changed]


@given(lines_of_all_kinds)
@example([])
def test_any_lines_have_the_same_outcome(lines: list[bytes]) -> None:
    require_compiled()
    require_same([line.replace(b"\n", b" ") for line in lines])


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:.17e}", "{:.3f}"])
)
def test_a_double_is_the_nearest_one(number: float, spelling: str) -> None:
    require_compiled()
    require_same([line_of({"double": spelling.format(number)}) for _ in range(2)])


@given(st.datetimes(), st.sampled_from(["", "Z", "+00:00", "-11:45"]))
def test_a_moment_is_the_same(moment: Any, zone: str) -> None:
    require_compiled()
    spelt = [f'"{moment.isoformat(each)}{zone}"' for each in ("T", " ")]
    require_same([line_of({"at": each, "local": each}) for each in spelt])


def test_records_need_not_be_neighbours() -> None:
    require_compiled()
    decoder = JsonDecoder(SCHEMA)
    records = records_of([b'{"needed":%d,"text":"t%d"}' % (each, each) for each in range(20)])
    some = records.only(np.array([2, 3, 7, 19]))
    found = decoder.decode(some)
    assert found.rows.column("text").to_pylist() == ["t2", "t3", "t7", "t19"]
    same(found, decoder.decode_thoroughly(some))


def test_records_outside_the_data_are_not_read() -> None:
    require_compiled()
    columns = JsonColumns.of(SCHEMA)
    assert columns is not None
    records = records_of([b'{"needed":1}'] * 6)
    ends, starts = records.ends.copy(), records.starts.copy()
    ends[0], starts[1] = 10**9, -5
    found = columns.read(Records(records.data, starts, ends, records.positions))
    assert found is not None
    assert found[1].tolist() == [True, True, False, False, False, False]


def test_where_most_is_not_plain_the_first_look_is_not_taken_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_compiled()
    looks: list[int] = []
    look = JsonColumns.read

    def counted(columns: JsonColumns, records: Records) -> object:
        looks.append(len(records))
        return look(columns, records)

    monkeypatch.setattr(JsonColumns, "read", counted)
    decoder = JsonDecoder(SCHEMA)
    escaped = records_of([line_of({"text": '"a\\nb"'})] * 3)
    for _ in range(33):
        assert decoder.decode(escaped).rows.column("text").to_pylist() == ["a\nb"] * 3
    assert len(looks) == 3


def test_columns_that_are_not_plain_are_for_the_parser() -> None:
    for kind in (pa.list_(pa.int64()), pa.binary(), pa.decimal128(30, 2), pa.timestamp("ns")):
        assert JsonColumns.of(pa.schema([("x", kind)])) is None


def test_without_the_library_all_is_parsed() -> None:
    lines = [line_of({name: each}) for name, found in TAKEN.items() for each in found]
    with without_compiled():
        assert JsonColumns.of(SCHEMA) is None
        require_same(lines)

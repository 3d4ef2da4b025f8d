"""Numbers of JSON and of text against exact arithmetic: the nearest one, or a bad record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.records import Records
from tests.services.compiled import require_compiled, without_compiled
from tests.unit.sources.kafka.batches import bad, batch_of, decode, rows

DOUBLE, FLOAT = pa.float64(), pa.float32()
WEIGHT = pa.field("_weight", pa.int8())
# Digits of the significand, the lowest power of two of a normal number, the largest number.
FORMATS = {DOUBLE: (53, -1022, 2**1024 - 2**971), FLOAT: (24, -126, 2**128 - 2**104)}

# Finite, and nearer to infinity than to any number of the type.
TOO_LARGE = [
    *((DOUBLE, each) for each in ("1.8e308", "2e308", "-2e308", "1e309", "1E+400", "1e99999")),
    *((DOUBLE, each) for each in ("9" * 310, "1" + "0" * 309, "0.1e310", "1" * 310 + ".5")),
    *((DOUBLE, each) for each in (str(2**1024 - 2**970), "1e" + "9" * 30)),
    *((FLOAT, each) for each in ("3.5e38", "-3.5e38", "1e39", "1e308", "1.8e308", "1e400")),
    *((FLOAT, each) for each in ("4" + "0" * 38, str(2**128 - 2**103))),
]
FITS = [
    *((DOUBLE, each) for each in ("0e400", "-0e400", "0.0e999999999999", "1.7976931348623157e308")),
    *((DOUBLE, each) for each in (str(2**1024 - 2**970 - 1), "1e-400", "-1e-400", "5e-324")),
    *(
        (DOUBLE, each)
        for each in ("0." + "0" * 400 + "1e401", "1" + "0" * 400 + "e-400", "1e-999999")
    ),
    *(
        (DOUBLE, each)
        for each in ("2.4703282292062327e-324", "2.4703282292062328e-324", "-0", "-0.0")
    ),
    *((FLOAT, each) for each in (str(2**128 - 2**103 - 1), "3.4028235677973366e38", "0e400")),
    *(
        (FLOAT, each)
        for each in ("340282356779733661637539395458142568447.9999", "1e-400", "1e-45")
    ),
    # By way of DOUBLE each of these would become a neighbour.
    *((FLOAT, each) for each in ("16777217.0000000001", "16777216.9999999999", "16777219")),
    *((FLOAT, each) for each in ("7.006492321624085355e-46", "7.0064923216240853547e-46")),
]


def nearest(text: str, kind: pa.DataType) -> float | None:
    """The nearest number of a type; None if that is infinity."""
    digits, lowest, largest = FORMATS[kind]
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > 2000:
        # Fractions of so many digits take too long.
        text = f"{mantissa}e{'-' * exponent.startswith('-')}2000"
    number = Fraction(text)
    size = abs(number)
    power = lowest
    if size:
        power = size.numerator.bit_length() - size.denominator.bit_length()
        power -= size < Fraction(2) ** power
    unit = Fraction(2) ** (max(power, lowest) - digits + 1)
    found = round(size / unit) * unit
    return (
        math.copysign(float(found), -1 if text.startswith("-") else 1) if found <= largest else None
    )


def in_kafka(text: str, kind: pa.DataType) -> list[Any]:
    return [each["x"] for each in rows(decode(schema(kind), batch_of([value(text)])))]


def in_file(text: str, kind: pa.DataType) -> list[Any]:
    found = JsonDecoder(schema(kind)).decode(records([value(text)]))
    return list(found.rows.column("x").to_pylist())


def in_list(text: str, kind: pa.DataType) -> list[Any]:
    found = in_file(f"[0,{text}]", pa.list_(pa.field("element", kind)))
    return [each[1] for each in found]


def in_map(text: str, kind: pa.DataType) -> list[Any]:
    return [dict(each)["a"] for each in in_file(f'{{"a":{text}}}', pa.map_(pa.string(), kind))]


def in_struct(text: str, kind: pa.DataType) -> list[Any]:
    found = in_file(f'[{{"a":{text}}}]', pa.list_(pa.field("element", pa.struct([("a", kind)]))))
    return [each[0]["a"] for each in found]


def in_envelope(text: str, kind: pa.DataType) -> list[Any]:
    message = b'{"op":"c","after":%s}' % value(text)
    chunk = decode(pa.schema([("x", kind), WEIGHT]), batch_of([message]), format="debezium-json")
    return [each["x"] for each in rows(chunk)]


def in_csv(text: str, kind: pa.DataType) -> list[Any]:
    return [
        each["x"] for each in rows(decode(schema(kind), batch_of([text.encode()]), format="csv"))
    ]


READERS = [in_kafka, in_file, in_list, in_map, in_struct, in_envelope, in_csv]
Read = Callable[[str, pa.DataType], list[Any]]


def schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("x", kind)])


def value(text: str) -> bytes:
    return b'{"x":%s}' % text.encode()


def records(lines: list[bytes]) -> Records:
    lengths = np.array([len(line) + 1 for line in lines], np.int64)
    ends = np.cumsum(lengths)
    return Records(b"\n".join([*lines, b""]), ends - lengths, ends, np.arange(len(lines)))


def check(read: Read, text: str, kind: pa.DataType) -> None:
    expected = nearest(text, kind)
    # As text, which tells a zero from one of the other sign.
    assert str(read(text, kind)) == str([] if expected is None else [expected])


@pytest.mark.parametrize("read", READERS)
def test_a_number_nearer_to_infinity_is_bad(read: Read) -> None:
    for kind, text in TOO_LARGE:
        assert nearest(text, kind) is None
        assert read(text, kind) == [], text
        with without_compiled():
            assert read(text, kind) == [], text


@pytest.mark.parametrize("read", READERS)
def test_any_other_is_the_nearest(read: Read) -> None:
    for kind, text in FITS:
        check(read, text, kind)
        with without_compiled():
            check(read, text, kind)


digits = st.text("0123456789", min_size=1, max_size=45)
numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    digits.map(lambda text: text.lstrip("0") or "0"),
    st.just("") | digits.map(lambda text: f".{text}"),
    st.just("") | st.integers(-360, 320).map(lambda power: f"e{power}"),
)


@st.composite
def halves(draw: st.DrawFn) -> str:
    """A number half way between two neighbours, exactly, or a little beside it."""
    kind = draw(st.sampled_from([DOUBLE, FLOAT]))
    bits, lowest, _ = FORMATS[kind]
    whole = draw(st.integers(2 ** (bits - 1), 2**bits - 1)) * 2 + 1
    power = draw(st.integers(lowest - bits, -lowest - bits + 1))
    exact = Fraction(whole) * Fraction(2) ** power
    scale = max(0, -power)
    spelt = str(exact.numerator * 10**scale // exact.denominator)
    return spelt + draw(st.sampled_from(["", ".0", ".000001"])) + f"e-{scale}"


@pytest.mark.parametrize("read", [in_kafka, in_csv])
@given(numbers | halves(), st.sampled_from([DOUBLE, FLOAT]))
@example("0e400", DOUBLE)
def test_a_number_is_the_nearest_or_bad(read: Read, text: str, kind: pa.DataType) -> None:
    check(read, text, kind)
    with without_compiled():
        check(read, text, kind)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "Inf", "-Inf", "-NaN"])
@pytest.mark.parametrize("kind", [DOUBLE, FLOAT])
def test_literals_of_double_are_numbers(literal: str, kind: pa.DataType) -> None:
    for read in READERS:
        ((found),) = read(literal, kind)
        assert str(found) == str(float(literal))


def test_a_zero_with_a_large_exponent_has_the_same_fate_beside_anything() -> None:
    """Which reader is asked first depends on the neighbours; the fate must not."""
    require_compiled()
    odd = [value(each) for each in ("0e400", "NaN", "NaN", "2e308", "1", '"x"', "1e400")]
    alone = {line: fate([line]) for line in odd}
    for some in itertools.permutations(odd, 3):
        assert fate(list(some)) == [found for line in some for found in alone[line]]
        with without_compiled():
            assert fate(list(some)) == [found for line in some for found in alone[line]]


def fate(lines: list[bytes]) -> list[str]:
    chunk = decode(schema(DOUBLE), batch_of(lines, offsets=range(len(lines))))
    found = dict(zip(chunk.positions.to_pylist(), map(str, rows(chunk)), strict=True))
    found |= {offset: reason for offset, _, reason in bad(chunk)}
    return [found[each] for each in range(len(lines))]


@pytest.mark.parametrize("name", ["n", "other"])
def test_a_number_of_a_field_that_is_not_declared_is_of_no_matter(name: str) -> None:
    for text in ("1e400", "0e400", "9" * 400, "2e308", "1e-999999999"):
        line = b'{"n":1,"other":{"a":[%s]}}' % text.encode()
        assert rows(decode(pa.schema([("n", pa.int64())]), batch_of([line]))) == [{"n": 1}]


def test_a_record_is_nested_as_deep_as_the_limit_and_no_deeper() -> None:
    """By every reader, however much of the stack whoever calls it has used."""

    def deep(levels: int) -> bytes:
        return b'{"n":1,"x":%s}' % (b"[" * (levels - 1) + b"]" * (levels - 1))

    for kinds in ([("n", pa.int64())], [("n", pa.int64()), ("m", pa.map_(pa.string(), DOUBLE))]):
        lines = [
            deep(255),
            deep(256),
            deep(257),
            deep(100_000),
            b'{"n":2,"s":"' + b"[" * 999 + b'"}',
        ]
        chunk = decode(pa.schema(kinds), batch_of(lines, offsets=range(5)))
        assert chunk.positions.to_pylist() == [0, 1, 4]
        assert [each[2] for each in bad(chunk)] == ["nested more than 256 deep"] * 2


@pytest.mark.parametrize("text", [rb"\ud800", rb"\udc00", rb"\ud83dx", rb"\udc00\ud800"])
def test_half_of_a_surrogate_pair_is_bad_wherever_it_stands(text: bytes) -> None:
    columns = pa.schema([("x", pa.string())])
    for line in (b'{"x":"%s"}' % text, b'{"o":["%s"]}' % text, b'{"%s":1}' % text):
        chunk = decode(columns, batch_of([line]))
        assert [each[2] for each in bad(chunk)] == [
            "not JSON: half of a surrogate pair is no character"
        ]

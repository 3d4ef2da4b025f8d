"""Decimals of text and JSON, against Python's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_dagster.sources.formats.columns import convert
from tests.unit.sources.kafka.batches import bad, batch_of, decode, rows

WEIGHT = pa.field("_weight", pa.int8())
DIGITS = st.text("0123456789", min_size=1, max_size=45) | st.sampled_from(
    ["0", "4", "94", "4" + "0" * 20, "9" * 38, "9" * 39, "1" + "0" * 37, "9" * 76, "1" * 100]
)
EXPONENTS = st.integers(-120, 120) | st.sampled_from([-(10**9), -400, -387, -237, -39, 10**9])


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """As JSON spells them."""
    whole = draw(DIGITS).lstrip("0") or "0"
    fraction = draw(st.just("") | DIGITS.map(lambda digits: f".{digits}"))
    exponent = draw(st.just("") | st.builds("{}{}".format, st.sampled_from("eE"), EXPONENTS))
    return draw(st.sampled_from(["", "-"])) + whole + fraction + exponent


@st.composite
def kinds(draw: st.DrawFn) -> pa.DataType:
    precision = draw(st.sampled_from([37, 38]) | st.integers(1, 38))
    return pa.decimal128(precision, draw(st.integers(0, precision)))


def fits(text: str, kind: pa.DataType) -> bool:
    """Whether a type can hold a number exactly."""
    _, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    spelt = "".join(map(str, digits)).lstrip("0")
    if not spelt:
        return True
    exponent += len(spelt) - len(spelt := spelt.rstrip("0"))
    whole: int = exponent + kind.scale
    return whole >= 0 and len(spelt) + whole <= int(kind.precision)


def is_plain(text: str, kind: pa.DataType) -> bool:
    """Whether a number is spelt with no more digits than the type has."""
    return "e" not in text.lower() and sum(map(str.isdigit, text)) <= int(kind.precision)


def in_text(text: str, kind: pa.DataType) -> list[Decimal]:
    column, wrong = convert(pa.chunked_array([[text]], pa.string()), kind)
    return [] if wrong else column.to_pylist()


def in_csv(text: str, kind: pa.DataType) -> list[Decimal]:
    chunk = decode(pa.schema([("m", kind)]), batch_of([text.encode()]), format="csv")
    return [each["m"] for each in rows(chunk)]


def in_json(text: str, kind: pa.DataType) -> list[Decimal]:
    chunk = decode(pa.schema([("m", kind)]), batch_of([b'{"m":%s}' % text.encode()]))
    return [each["m"] for each in rows(chunk)]


def in_quotes(text: str, kind: pa.DataType) -> list[Decimal]:
    return in_json(f'"{text}"', kind)


def in_a_list(text: str, kind: pa.DataType) -> list[Decimal]:
    inner = pa.list_(pa.field("element", kind))
    return [each[0] for each in in_json(f"[{text}]", inner)]  # type: ignore[index]


def in_a_map(text: str, kind: pa.DataType) -> list[Decimal]:
    found: list[Any] = in_json(f'{{"a":{text}}}', pa.map_(pa.string(), kind))
    return [dict(each)["a"] for each in found]


def in_an_envelope(text: str, kind: pa.DataType) -> list[Decimal]:
    value = b'{"op":"c","after":{"m":%s}}' % text.encode()
    schema = pa.schema([pa.field("m", kind), WEIGHT])
    return [each["m"] for each in rows(decode(schema, batch_of([value]), format="debezium-json"))]


def in_text_of_an_envelope(text: str, kind: pa.DataType) -> list[Decimal]:
    value = json.dumps({"op": "c", "after": {"m": text}}).encode()
    schema = pa.schema([pa.field("m", kind), WEIGHT])
    given = {"format": "debezium-json", "debezium_decimal_mode": "string"}
    chunk = decode(schema, batch_of([value]), **given)
    return [each["m"] for each in rows(chunk)]


def in_a_list_of_an_envelope(text: str, kind: pa.DataType) -> list[Decimal]:
    inner = pa.list_(pa.field("element", kind))
    found: list[Any] = in_an_envelope(f"[{text}]", inner)
    return [each[0] for each in found]


OF_TEXT = [in_text, in_csv, in_text_of_an_envelope]
OF_JSON = [in_json, in_quotes, in_a_list, in_a_map, in_an_envelope, in_a_list_of_an_envelope]


@pytest.mark.parametrize("read", OF_TEXT)
@given(text=numbers(), kind=kinds())
@example("400000000000000000000", pa.decimal128(38, 18))
@example("12345678901234567890123", pa.decimal128(38, 18))
@example("4.000", pa.decimal128(38, 38))
@example("0.94e-39", pa.decimal128(10, 2))
@example("1e-99999999", pa.decimal128(10, 2))
@example("0E-40", pa.decimal128(10, 2))
def test_text_is_the_number_it_says_or_bad(
    read: Callable[[str, pa.DataType], list[Decimal]], text: str, kind: pa.DataType
) -> None:
    found = read(text, kind)
    assert found == ([Decimal(text)] if fits(text, kind) else [])


@pytest.mark.parametrize("read", OF_JSON)
@given(text=numbers(), kind=kinds())
@example("400000000000000000000", pa.decimal128(38, 18))
@example("12345678901234567890123", pa.decimal128(38, 18))
@example("4.000", pa.decimal128(38, 38))
@example("0.94e-39", pa.decimal128(10, 2))
@example("1e-237", pa.decimal128(38, 2))
@example("1e-99999999", pa.decimal128(10, 2))
@example("1e-99999999", pa.decimal128(38, 18))
@example("1000e-3", pa.decimal128(38, 18))
def test_a_number_of_json_is_itself_or_bad(
    read: Callable[[str, pa.DataType], list[Decimal]], text: str, kind: pa.DataType
) -> None:
    found = read(text, kind)
    assert found in ([], [Decimal(text)])
    if not fits(text, kind):
        assert not found
    elif is_plain(text, kind):
        assert found


@given(st.lists(numbers(), max_size=30), kinds(), st.sampled_from(["json", "csv"]))
def test_the_fate_of_a_number_is_its_own(texts: list[str], kind: pa.DataType, name: str) -> None:
    schema = pa.schema([("m", kind)])
    values = [each.encode() if name == "csv" else b'{"m":%s}' % each.encode() for each in texts]
    together = decode(schema, batch_of(values), format=name)
    alone = [(value, rows(decode(schema, batch_of([value]), format=name))) for value in values]
    assert rows(together) == [each for _, found in alone for each in found]
    assert [each[1] for each in bad(together)] == [value for value, found in alone if not found]


@pytest.mark.parametrize("text", ["  1e2  ", "\t100", "100" + " " * 60])
def test_white_space_around_text_does_not_matter(text: str) -> None:
    assert in_text(text, pa.decimal128(10, 2)) == [Decimal(100)]


@pytest.mark.parametrize("text", ["e5", "1e", "1_0e1", "NaNe1", "Infinite", "1e5x", "1" * 40 + "x"])
def test_text_that_is_no_number_is_bad(text: str) -> None:
    _, wrong = convert(pa.chunked_array([[text]], pa.string()), pa.decimal128(38, 0))
    assert "is not a" in wrong[0]


def test_small_numbers_of_other_columns_are_none_of_a_decimal() -> None:
    schema = pa.schema([("m", pa.decimal128(38, 18)), ("x", pa.float64()), ("id", pa.string())])
    lines = [
        b'{"m":1,"x":1e-300,"id":"3f2e-40","more":{"m":1e-999999999}}',
        b'{"m":2,"x":Inf,"id":"e-99"}',
        b'{"m":3e-99,"x":Inf}',
        b'{"m":4,"x":"e-99}',
    ]
    chunk = decode(schema, batch_of(lines))
    assert [each["m"] for each in rows(chunk)] == [1, 2]
    assert [each[1] for each in bad(chunk)] == lines[2:]
    assert "`m`: 3e-99 cannot be decimal128(38, 18) without a loss" in bad(chunk)[0][2]
    assert "not JSON" in bad(chunk)[1][2]

"""Test keys of every column type, with adjacent values that a lossy comparison would confuse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Final

import pyarrow as pa

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class KeyKind:
    """The types of the key columns, and keys that are easily confused.

    Attributes:
        name: The name of the test case.
        types: The types of the columns, which are named ``k0``, ``k1``, ….
        keys: Values for these columns; the first two are adjacent.
    """

    name: str
    types: tuple[pa.DataType, ...]
    keys: tuple[Key, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(f"k{place}" for place in range(len(self.types)))

    def schema(self, value: str) -> pa.Schema:
        """The key columns, and a string column of the name ``value``."""
        fields = [*zip(self.columns, self.types, strict=True), (value, pa.string())]
        return pa.schema(fields)

    def table(self, keys: Sequence[Key]) -> pa.Table:
        """A table with one row per key."""
        columns = zip(*keys, strict=True) if keys else ((),) * len(self.types)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, self.types, strict=True)]
        return pa.table(arrays, names=[*self.columns])


_MOMENT: Final = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Above it, a float64 does not represent every integer.
_FLOAT_END: Final = 2**53

# Precisions around what 32, 64 and 128 bits and a double hold, each with some of its scales.
_DECIMALS: Final = (
    *((digits, 0) for digits in (1, 5, 9, 10, 15, 16, 17, 18, 19, 20, 28, 29, 37, 38)),
    (1, 1),
    (9, 2),
    (15, 15),
    (16, 8),
    (17, 1),
    (18, 6),
    (18, 18),
    (19, 18),
    (20, 10),
    (30, 30),
    (38, 1),
    (38, 19),
    (38, 37),
    (38, 38),
)


def _kinds() -> Iterator[KeyKind]:
    for bits in (8, 16, 32, 64):
        most, kind = 2 ** (bits - 1) - 1, getattr(pa, f"int{bits}")()
        whole = [most, most - 1, -most - 1, -most, 0, -1, 1]
        if bits == 64:
            whole += [_FLOAT_END + 1, _FLOAT_END, _FLOAT_END - 1, -_FLOAT_END - 1, -_FLOAT_END]
        yield _of_one(f"int{bits}", kind, whole)
    for bits in (8, 16, 32):
        most = 2**bits - 1
        yield _of_one(f"uint{bits}", getattr(pa, f"uint{bits}")(), [most, most - 1, 0, 1])
    yield _of_one("boolean", pa.bool_(), [True, False])
    for digits, scale in _DECIMALS:
        yield _of_one(
            f"decimal({digits},{scale})", pa.decimal128(digits, scale), _near(digits, scale)
        )
    yield from _texts()
    yield from _times()
    yield from _composites()
    for bits in (32, 64):
        yield _of_one(f"float{bits}", getattr(pa, f"float{bits}")(), [0.5, 0.25, 1.0])
    yield _of_one("array", pa.list_(pa.int32()), [[1, 2], [1, 3]])
    yield _of_one("struct", pa.struct([pa.field("a", pa.int32())]), [{"a": 1}, {"a": 2}])


def _near(digits: int, scale: int) -> list[object]:
    """The largest and the smallest numbers, adjacent ones differing in the last digit only."""
    most = 10**digits - 1
    whole = [most, most - 1, -most, 1 - most, 0, 1, -1, 10 ** (digits - 1)]
    if digits > 16:
        whole += [_FLOAT_END + 1, _FLOAT_END, -_FLOAT_END - 1]
    return [Decimal((int(each < 0), _digits(each), -scale)) for each in dict.fromkeys(whole)]


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


def _texts() -> Iterator[KeyKind]:
    yield _of_one("text", pa.string(), ["b", "a", "A", "B", "", "ab", "a'b", "a\\b", 'a"b', "a,b"])
    yield _of_one("text of digits", pa.string(), ["1", "01", "1.0", "1e0", "+1", "001", "0x1"])
    yield _of_one("text with spaces", pa.string(), ["a ", "a", " a", "a  ", " ", "", "a\t", "a\n"])
    for length in (32, 64, 180):
        prefix = "x" * length
        ends = ["2", "1", "", "11", "y"]
        yield _of_one(f"text of {length} and more", pa.string(), [prefix + end for end in ends])
    yield _of_one(
        "text beyond ASCII",
        pa.string(),
        ["é", "e\u0301", "e", "E", "ß", "ss", "\U0010ffff", "\ufffd"],
    )
    yield _of_one(
        "text of wide characters", pa.string(), ["\U0010ffff" * 40 + end for end in ("2", "1", "")]
    )
    for name, kind in (("large text", pa.large_string()), ("text view", pa.string_view())):
        yield _of_one(name, kind, ["b", "a", "A", ""])
    yield _of_one("binary view", pa.binary_view(), [b"b", b"a", b""])
    yield _of_one("dictionary of text", pa.dictionary(pa.int32(), pa.string()), ["b", "a", "A", ""])
    short = [b"\x01", b"\x00", b"\x00\x00", b"", b"\xff", b"\xff\xff", b"a", b"A", b"\\x61", b" "]
    yield _of_one("binary", pa.binary(), short)
    yield _of_one("large binary", pa.large_binary(), short)
    high = b"\xff" * 64
    yield _of_one("binary of 64 and more", pa.binary(), [high + b"2", high + b"1", high])
    yield _of_one("binary(4)", pa.binary(4), [b"\0\0\0\1", b"\0\0\0\0", b"abcd", b"abc "])


def _times() -> Iterator[KeyKind]:
    near = [
        *(_MOMENT + number * _MICROSECOND for number in (1, 0, 997, 998, 999, 1000, 999_998)),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ]
    far = [
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
        datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1582, 10, 4, tzinfo=UTC),
        datetime(1582, 10, 15, tzinfo=UTC),
    ]
    for name, moments in (("", near), (" of any year", far)):
        plain = [moment.replace(tzinfo=None) for moment in moments]
        yield _of_one(f"timestamp{name}", pa.timestamp("us", "UTC"), moments)
        yield _of_one(f"timestamp_ntz{name}", pa.timestamp("us"), plain)
    days = [(2026, 1, 2), (2026, 1, 1), (1969, 12, 31), (1970, 1, 1)]
    yield _of_one("date", pa.date32(), [date(*each) for each in days])
    days = [(9999, 12, 31), (9999, 12, 30), (1, 1, 1), (1, 1, 2), (1582, 10, 4)]
    yield _of_one("date of any year", pa.date32(), [date(*each) for each in days])
    clock = [time(23, 59, 59, 999_999), time(23, 59, 59, 999_998), time(), time(0, 0, 0, 1)]
    yield _of_one("time", pa.time64("us"), clock)
    spans = [_MICROSECOND, timedelta(0), -_MICROSECOND, timedelta(days=400)]
    yield _of_one("interval", pa.duration("us"), spans)


def _composites() -> Iterator[KeyKind]:
    def of(name: str, *columns: tuple[pa.DataType, Sequence[object]]) -> KeyKind:
        kinds = tuple(kind for kind, _ in columns)
        return KeyKind(name, kinds, tuple(product(*(values for _, values in columns))))

    text, number = pa.string(), pa.decimal128(38, 18)
    amounts = [
        Decimal("10000000000000000000.000000000000000002"),
        Decimal("10000000000000000000.000000000000000001"),
    ]
    yield of(
        "whole number and text", (pa.int64(), [_FLOAT_END + 1, _FLOAT_END]), (text, ["b", "a"])
    )
    # Different pairs whose concatenation is the same text.
    yield of("two texts", (text, ["a", "ab", "a,b", ""]), (text, ["bc", "c", "b,c", ""]))
    yield of("text and decimal", (text, ["b", "a"]), (number, amounts))
    yield of(
        "two decimals",
        (number, amounts),
        (pa.decimal128(20, 0), [Decimal(10**19 + 1), Decimal(10**19)]),
    )
    yield of(
        "window and text",
        (pa.timestamp("us", "UTC"), [_MOMENT + _MICROSECOND, _MOMENT]),
        (text, ["b", "a"]),
    )
    yield of(
        "date, boolean and number",
        (pa.date32(), [date(2026, 1, 2), date(2026, 1, 1)]),
        (pa.bool_(), [True, False]),
        (pa.int8(), [127, -128]),
    )
    yield of("binary and whole number", (pa.binary(), [b"\0", b""]), (pa.int32(), [1, 0]))
    yield of(
        "every fixed width",
        (pa.int16(), [1]),
        (pa.int32(), [1]),
        (pa.timestamp("us"), [datetime(2026, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1)]),  # noqa: DTZ001
        (pa.decimal128(9, 2), [Decimal("1.01"), Decimal("1.00")]),
    )


def _of_one(name: str, kind: pa.DataType, values: Sequence[object]) -> KeyKind:
    return KeyKind(name, (kind,), tuple((value,) for value in values))


KEY_KINDS: Final = {kind.name: kind for kind in _kinds()}

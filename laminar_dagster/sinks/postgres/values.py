"""Encode Arrow arrays in PostgreSQL's binary form, and refuse values it cannot hold."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import refuse_odd_text
from laminar_dagster.sinks.bad_values import refuse
from laminar_dagster.sinks.numbers import Int64s, flags, numbers
from laminar_dagster.sinks.pieces import Piece
from laminar_dagster.sinks.postgres.wire import fixed
from laminar_dagster.sinks.times import LEAST, MOST, counted

# PostgreSQL counts from 2000-01-01.
_EPOCH_DAYS: Final = 10_957
_EPOCH_MICROS: Final = _EPOCH_DAYS * 86_400_000_000
# Julian day 0 and the last day before "infinity", in days since 1970.
_FIRST_DAY: Final = -2_451_545 + _EPOCH_DAYS
_LAST_DAY: Final = 2_147_483_493 - 2_451_545 + _EPOCH_DAYS
_FIRST_MICRO: Final = _FIRST_DAY * 86_400_000_000
_DAY_MICROS: Final = 86_400_000_000

_OUT_OF_RANGE: Final = "are out of the range of PostgreSQL's type"
_NUL: Final = "hold the character U+0000, which PostgreSQL cannot; replace it in the view"
# \u0000 after an even number of backslashes: after an odd number, its own backslash is escaped.
_ESCAPED_NUL: Final = r"(^|[^\\])(\\\\)*\\u0000"
_NO_UUID: Final = "are no UUIDs"
_CANONICAL_UUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_OTHER_SPELLING: Final = (
    "are UUIDs not in lower case with hyphens: in a key, other spellings of one UUID would share"
    " a row; spell them so in the view"
)

# The value of each hexadecimal digit by its character code; 255 for other characters.
_HEX: Final = np.full(256, 255, np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _HEX[[ord(_digit), ord(_digit.upper())]] = _value


def booleans(array: pa.Array) -> tuple[Piece, ...]:
    """Booleans, as one byte each."""
    return fixed(array, ("u1", numbers(array.cast(pa.uint8()))))


def dates(array: pa.Array) -> tuple[Piece, ...]:
    """Dates, as days since 2000.

    Raises:
        BadValues: A date is out of range.
    """
    days = numbers(array.cast(pa.date32()).cast(pa.int32())).astype(np.int64)
    refuse((days < _FIRST_DAY) | (days > _LAST_DAY), _OUT_OF_RANGE)
    return fixed(array, (">i4", days - _EPOCH_DAYS))


def timestamps(array: pa.Array) -> tuple[Piece, ...]:
    """Timestamps, as microseconds since 2000; those with a zone are in UTC, as in PostgreSQL.

    Raises:
        BadValues: A timestamp is out of range, or not a whole microsecond.
    """
    return fixed(array, (">i8", _micros(array, _FIRST_MICRO, MOST) - _EPOCH_MICROS))


def times(array: pa.Array) -> tuple[Piece, ...]:
    """Times of day, as microseconds since midnight.

    Raises:
        BadValues: A time is not a whole microsecond, or not within a day.
    """
    return fixed(array, (">i8", _micros(array, 0, _DAY_MICROS)))


def intervals(array: pa.Array) -> tuple[Piece, ...]:
    """Durations, as intervals of microseconds, with 0 days and 0 months.

    Raises:
        BadValues: A duration is out of range, or not a whole microsecond.
    """
    return fixed(array, (">i8", _micros(array, LEAST, MOST)), (">i4", 0), (">i4", 0))


def _micros(array: pa.Array, first: int, last: int) -> Int64s:
    return counted(array, "us", first, last, _OUT_OF_RANGE)


def texts(array: pa.Array) -> pa.Array:
    """Texts for any text type.

    Raises:
        BadValues: A text holds U+0000, which PostgreSQL does not allow, or is not UTF-8.
    """
    array = array.cast(pa.large_string())
    refuse_odd_text(array)
    refuse(flags(pc.match_substring(array, "\0")), _NUL)
    return array


def json_texts(array: pa.Array) -> pa.Array:
    """JSON documents for ``jsonb``, which unescapes strings, so an escaped U+0000 is bad too.

    Raises:
        BadValues: A document holds U+0000, escaped or not, or is not UTF-8.
    """
    array = texts(array)
    refuse(flags(pc.match_substring_regex(array, _ESCAPED_NUL)), _NUL)
    return array


def uuids(array: pa.Array) -> tuple[Piece, ...]:
    """UUIDs from text, with hyphens or without.

    Raises:
        BadValues: A text is not a UUID.
    """
    valid = array.is_valid()
    digits = pc.replace_substring(array.cast(pa.string()), "-", "").cast(pa.binary())
    wrong = pc.not_equal(pc.binary_length(digits), 32)
    refuse(flags(wrong), _NO_UUID)
    nothing = pa.scalar(b"0" * 32, pa.binary())
    whole = pc.if_else(valid, digits, nothing).cast(pa.binary(32))
    codes = np.frombuffer(whole.buffers()[1], np.uint8).reshape(-1, 32)[: len(array)]
    halves = _HEX[codes]
    refuse((halves == 255).any(axis=1), _NO_UUID)
    data = (halves[:, ::2] << 4) | halves[:, 1::2]
    return fixed(array, (("u1", (16,)), data))


def refuse_other_spellings(array: pa.Array) -> None:
    """Refuse UUID texts that are not in the canonical spelling: lower case with hyphens.

    Raises:
        BadValues: A text is in another spelling.
    """
    is_canonical = pc.match_substring_regex(array.cast(pa.string()), _CANONICAL_UUID)
    refuse(flags(pc.invert(is_canonical)), _OTHER_SPELLING)

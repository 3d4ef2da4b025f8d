"""Converts numbers to declared columns; marks records whose values do not fit as bad."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes, Mask, UInt64s

# Converts one number a lane into a column with one row a lane.
FromInts = Callable[[Int64s, Lanes], pa.Array]

_MICROS: Final = {"ms": 1000, "us": 1}
_NANOS_A_MICRO: Final = 1000
_WORD: Final = 8
_TWO_WORDS: Final = 16
# Longer decimals are refused: leading sign bytes are allowed, but not without limit.
_LONGEST_DECIMAL: Final = 64
_DIGITS: Final = 38
_DIGITS_OF_INT64: Final = 19
_UNFIT: Final = "{} does not fit in {}"
_LIMIT: Final = divmod(10**_DIGITS, 2**64)


def integers_of(kind: pa.DataType, what: str) -> FromInts:
    """Integers into TINYINT, SMALLINT, INT or BIGINT."""
    if pa.types.is_int64(kind):
        return lambda values, lanes: pa.array(values)
    bounds = np.iinfo(kind.to_pandas_dtype())

    def narrow(values: Int64s, lanes: Lanes) -> pa.Array:
        values = within(values, lanes, bounds.min, bounds.max, _UNFIT.format(what, kind))
        return pa.array(values.astype(bounds.dtype))

    return narrow


def floats_of(kind: pa.DataType) -> FromInts:
    """Integers into FLOAT or DOUBLE, rounded as Avro has it."""
    return lambda values, lanes: pa.array(values.astype(kind.to_pandas_dtype()))


def whole_decimals_of(kind: pa.DataType, what: str) -> FromInts:
    """Integers into DECIMAL."""
    largest = 10 ** (kind.precision - kind.scale) - 1
    small = min(largest, 2**63 - 1)

    def widen(values: Int64s, lanes: Lanes) -> pa.Array:
        if largest == small:
            values = within(values, lanes, -small, small, _UNFIT.format(what, kind))
        return pa.array(values).cast(pa.decimal128(_DIGITS_OF_INT64, 0)).cast(kind)

    return widen


def times_of(kind: pa.DataType, unit: str, what: str) -> FromInts:
    """Numbers of ``ms``, ``us`` or ``ns`` since 1970 as TIMESTAMP, rounded down to microseconds."""

    def stamp(values: Int64s, lanes: Lanes) -> pa.Array:
        if unit == "ns":
            micros = values // _NANOS_A_MICRO
        else:
            factor = _MICROS[unit]
            largest = (2**63 - 1) // factor
            reason = _UNFIT.format(what, kind)
            micros = within(values, lanes, -largest, largest, reason) * factor
        return pa.array(micros).view(kind)

    return stamp


def dates_of(what: str) -> FromInts:
    """Days since 1970 into DATE."""
    plain = integers_of(pa.int32(), what)
    return lambda values, lanes: plain(values, lanes).view(pa.date32())


def within(values: Int64s, lanes: Lanes, low: int, high: int, reason: str) -> Int64s:
    """The values, with zero where they are out of bounds; those records are marked as bad."""
    odd = (values < low) | (values > high)
    if odd.any():
        lanes.refuse(np.flatnonzero(odd), reason)
        values = np.where(odd, 0, values)
    return values


def decimals(
    lanes: Lanes, starts: Int64s, lengths: Int64s, scale: int, kind: pa.DataType, what: str
) -> pa.Array:
    """Big-endian two's complement numbers, one a lane, into DECIMAL.

    Args:
        lanes: The lanes, to mark records as bad.
        starts: Where the bytes of each number begin.
        lengths: How many bytes each number has.
        scale: The number of digits after the decimal point.
        kind: The declared type.
        what: The column's name, for errors.
    """
    body = lanes.body
    odd = np.zeros(len(starts), np.bool_)
    if len(lengths) and lengths.max() > _TWO_WORDS:
        odd = _too_large(lanes, starts, lengths)
        keep = np.where(odd, 0, np.minimum(lengths, _TWO_WORDS))
        starts, lengths = starts + (lengths - keep), keep
    ends = starts + lengths
    low = _last_bytes(body.words[ends - _WORD], np.minimum(lengths, _WORD))
    high = np.where(
        lengths > _WORD,
        _last_bytes(body.words[np.maximum(ends - _TWO_WORDS, 0)], lengths - _WORD),
        low >> 63,
    )
    odd |= _beyond_38_digits(high, low.view(np.uint64))
    high[odd], low[odd] = 0, 0
    both = np.empty(2 * len(starts), np.int64)
    both[0::2], both[1::2] = low, high
    wide = pa.decimal128(_DIGITS, scale)
    found = pa.Array.from_buffers(wide, len(starts), [None, pa.py_buffer(both)], null_count=0)
    lanes.refuse(np.flatnonzero(odd), _UNFIT.format(what, kind))
    return cast_decimals(lanes, found, kind, what)


def cast_decimals(lanes: Lanes, found: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Decimals of 38 digits into a declared type; zero where they do not fit (records are bad)."""
    if found.type == kind:
        return found
    fits = _fits(found, kind)
    odd = np.flatnonzero(~fits.to_numpy(zero_copy_only=False))
    if len(odd):
        lanes.refuse(odd, _UNFIT.format(what, kind))
        found = pc.if_else(fits, found, pa.scalar(Decimal(0), found.type))
    return found.cast(kind)


def _fits(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whether each value's digits before and after the decimal point fit into a type."""
    fits = pa.array(np.ones(len(found), np.bool_))
    scale, before = found.type.scale, kind.precision - kind.scale
    if before + scale < _DIGITS:
        bound = pa.scalar(Decimal(10) ** before, pa.decimal128(_DIGITS, scale))
        fits = pc.less(pc.abs(found), bound)
    if kind.scale < scale:
        # Cutting off the last digits must not change the number.
        cut = found.cast(pa.decimal128(_DIGITS, kind.scale), safe=False)
        fits = pc.and_(fits, pc.equal(cut.cast(found.type), found))
    return fits


def _last_bytes(words: UInt64s, sizes: Int64s) -> Int64s:
    """The last ``sizes`` bytes of words, big-endian, as signed numbers."""
    shifts = np.maximum(64 - 8 * sizes, 0)
    signed: Int64s = (words.byteswap().view(np.int64) << shifts) >> shifts
    return np.where(sizes > 0, signed, 0)


def _too_large(lanes: Lanes, starts: Int64s, lengths: Int64s) -> Mask:
    """Whether the bytes before a number's last 16 hold more than copies of its sign."""
    raw = lanes.body.raw
    odd = lengths > _LONGEST_DECIMAL
    longer = np.flatnonzero((lengths > _TWO_WORDS) & ~odd)
    sign = np.where(raw[starts[longer] + lengths[longer] - _TWO_WORDS] > 127, 255, 0)
    for place in range(_LONGEST_DECIMAL - _TWO_WORDS):
        before = place < lengths[longer] - _TWO_WORDS
        if not before.any():
            break
        odd[longer[before]] |= raw[starts[longer[before]] + place] != sign[before]
    return odd


def _beyond_38_digits(high: Int64s, low: UInt64s) -> Mask:
    limit_high, limit_low = _LIMIT
    above = (high > limit_high) | ((high == limit_high) & (low >= np.uint64(limit_low)))
    # Two's complement: -x is ~x + 1, so the limit for the complement is one less.
    flipped_high, flipped_low = ~high, ~low
    below = (flipped_high > limit_high) | (
        (flipped_high == limit_high) & (flipped_low >= np.uint64(limit_low - 1))
    )
    odd: Mask = np.where(high < 0, below, above)
    return odd


def unsigned_decimals_of(kind: pa.DataType, what: str) -> Callable[[UInt64s, Lanes], pa.Array]:
    """Unsigned 64-bit integers into DECIMAL."""
    wide = pa.decimal128(_DIGITS, 0)

    def widen(values: UInt64s, lanes: Lanes) -> pa.Array:
        both = np.zeros(2 * len(values), np.uint64)
        both[0::2] = values
        found = pa.Array.from_buffers(wide, len(values), [None, pa.py_buffer(both)], null_count=0)
        return cast_decimals(lanes, found, kind, what)

    return widen

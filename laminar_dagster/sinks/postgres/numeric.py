"""Encode integers and decimals in the binary form of ``numeric``: digits in base 10,000.

The server drops zeros at both ends, so every value of a column is sent with the maximum number of
digits of its type, and all have the same length. Up to 18 decimal digits are divided as 64-bit
numbers; more by long division in 32-bit limbs. Both are vectorised over the column.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sinks.bad_values import refuse
from laminar_dagster.sinks.numbers import Numbers
from laminar_dagster.sinks.pieces import Field, Piece
from laminar_dagster.sinks.postgres.wire import fixed

_Magnitudes = npt.NDArray[np.uint64]

_TOO_LONG: Final = "have more digits than their type says"
_NEGATIVE: Final = 0x4000
_DIGITS_IN_64_BITS: Final = 18
_LIMB: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)


def whole_number_pieces(array: pa.Array, numbers: Numbers, digits: int) -> tuple[Piece, ...]:
    """Encode integers of at most ``digits`` decimal digits."""
    is_negative = numbers < 0
    # Negate by complement plus one, as uint64: -(-2**63) would overflow an int64.
    magnitudes = np.where(is_negative, ~numbers, numbers).astype(np.uint64)
    magnitudes += is_negative
    return _pieces(array, _Short(magnitudes), is_negative, digits, 0)


def decimal_pieces(array: pa.Array) -> tuple[Piece, ...]:
    """Encode decimals of any width.

    Raises:
        BadValues: A value has more digits than its type says.
    """
    precision, scale = array.type.precision, array.type.scale
    if scale < 0:
        precision, scale = precision - scale, 0
        array = array.cast(pa.decimal256(precision, 0))
    elif not (pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type)):
        array = array.cast(pa.decimal128(precision, scale))
    limbs = _limbs(array)
    is_negative = (limbs[:, -1] >> 31).astype(np.bool_)
    rest: _Short | _Long
    if precision <= _DIGITS_IN_64_BITS and limbs.shape[1] == 4:
        low = np.ascontiguousarray(limbs[:, :2]).view("<i8")[:, 0]
        # The upper limbs must be sign extension only, or the value does not fit 64 bits.
        refuse(_valid(array) & _above(limbs, is_negative), _TOO_LONG)
        rest = _Short(np.abs(low).astype(np.uint64))
    else:
        rest = _Long(limbs, is_negative)
    return _pieces(array, rest, is_negative, precision, scale)


class _Short:
    """Magnitudes of 64 bits."""

    def __init__(self, magnitudes: _Magnitudes) -> None:
        self._left = magnitudes

    def divide(self, divisor: int) -> _Magnitudes:
        self._left, remainder = np.divmod(self._left, np.uint64(divisor))
        return remainder

    def is_left(self) -> npt.NDArray[np.bool_]:
        return np.not_equal(self._left, 0)


class _Long:
    """Magnitudes of any width, as 32-bit limbs held in 64 bits, the lowest first."""

    def __init__(self, limbs: npt.NDArray[np.uint32], is_negative: npt.NDArray[np.bool_]) -> None:
        self._left: list[_Magnitudes] = []
        carry = is_negative.astype(np.uint64)
        for place in range(limbs.shape[1]):
            limb = limbs[:, place]
            # Two's complement: the magnitude of a negative number is its complement plus one.
            limb_and_carry = np.where(is_negative, ~limb, limb).astype(np.uint64) + carry
            self._left.append(limb_and_carry & _LOW)
            carry = limb_and_carry >> _LIMB

    def divide(self, divisor: int) -> _Magnitudes:
        by = np.uint64(divisor)
        remainder = np.zeros_like(self._left[0])
        for place in reversed(range(len(self._left))):
            self._left[place], remainder = np.divmod((remainder << _LIMB) | self._left[place], by)
        return remainder

    def is_left(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.any([limb != 0 for limb in self._left], axis=0)
        return found


def _pieces(
    array: pa.Array,
    rest: _Short | _Long,
    is_negative: npt.NDArray[np.bool_],
    precision: int,
    scale: int,
) -> tuple[Piece, ...]:
    before = -(-max(precision - scale, 0) // 4)
    after = -(-scale // 4)
    count = before + after
    digits = np.zeros((len(array), count), ">i2")
    place = count - 1
    if odd := scale % 4:
        # The last base-10,000 digit holds the rest of the scale, padded with zeros.
        digits[:, place] = rest.divide(10**odd) * np.uint64(10 ** (4 - odd))
        place -= 1
    for each in range(place, -1, -1):
        digits[:, each] = rest.divide(10_000)
    refuse(_valid(array) & rest.is_left(), _TOO_LONG)
    sign = np.where(is_negative, _NEGATIVE, 0)
    fields: tuple[Field, ...] = (
        (">i2", count),
        (">i2", before - 1),
        (">i2", sign),
        (">i2", scale),
        ((">i2", (count,)), digits),
    )
    return fixed(array, *fields)


def _limbs(array: pa.Array) -> npt.NDArray[np.uint32]:
    """The 32-bit limbs of decimals, the lowest first."""
    width = array.type.bit_width // 32
    every = np.frombuffer(array.buffers()[1], "<u4").reshape(-1, width)
    return every[array.offset : array.offset + len(array)]


def _above(
    limbs: npt.NDArray[np.uint32], is_negative: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """A mask of the values that do not fit into 64 bits with sign."""
    sign = np.where(is_negative, np.uint32(0xFFFFFFFF), np.uint32(0))
    below = (limbs[:, 1] >> 31).astype(np.bool_)
    found: npt.NDArray[np.bool_] = limbs[:, 2] != sign
    found |= limbs[:, 3] != sign
    found |= below != is_negative
    return found


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found

"""Store decimals as SQLite numbers, which compare and sort as numbers.

SQLite has no decimals, only 64-bit integers and binary doubles. A decimal of at most 15 significant
digits survives a round trip through a double, and different ones stay different and in order
(``DBL_DIG``; SQLite prints and promises as many). Longer fractions could collide with a neighbour,
so they are refused.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa

from laminar_dagster.sinks.arrow_values import valid_rows
from laminar_dagster.sinks.bad_values import Rows, refuse
from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.times import LEAST, MOST

DIGITS: Final = 15
# Powers of ten up to this one are exact in binary, so a division by them rounds only once.
LARGEST_POWER: Final = 22

_INEXACT: Final = (
    f"have more than {DIGITS} significant digits, which SQLite has no exact number for; ROUND them"
    " in the view, CAST them to STRING, or set decimals = 'text', which does not compare as number"
)


def refuse_inexact(array: pa.Array) -> None:
    """Refuse decimals that SQLite cannot store as an exact number.

    Raises:
        BadValues: A decimal has no exact number.
    """
    if array.type.precision <= DIGITS:
        return
    _, is_short = _short(array)
    places = np.flatnonzero(~is_short)
    values = array.take(pa.array(places)).to_pylist()
    rows = np.zeros(len(array), np.bool_)
    rows[[place for place, value in zip(places, values, strict=True) if _number(value) is None]] = 1
    refuse(rows, _INEXACT)


def numbers_of(array: pa.Array) -> list[object]:
    """Decimals that passed ``refuse_inexact``, as numbers to bind.

    A column of numeric affinity stores 5.0 as an integer, so ``typeof`` differs between values.
    """
    scale = array.type.scale
    unscaled, is_short = _short(array)
    if not (is_short.all() and 0 <= scale <= LARGEST_POWER):
        return [None if value is None else _number(value) for value in array.to_pylist()]
    fractions: list[object] = (unscaled / float(10**scale)).tolist()
    if array.null_count:
        for place in np.flatnonzero(~valid_rows(array)):
            fractions[place] = None
    return fractions


def _short(array: pa.Array) -> tuple[Int64s, Rows]:
    """The unscaled values, and a mask of those with at most ``DIGITS`` digits; a null is 0."""
    kind = array.type
    if not (pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)):
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    if not len(array):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    words = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, array.type.byte_width // 8)
    words = words[array.offset : array.offset + len(array)]
    lowest = np.where(valid_rows(array), words[:, 0], 0)
    # The upper words must be sign extension only, or the value does not fit 64 bits.
    is_alone = (words[:, 1:] == (words[:, :1] >> 63)).all(axis=1)
    limit = 10**DIGITS
    is_short: Rows = (is_alone & (-limit < lowest) & (lowest < limit)) | ~valid_rows(array)
    return lowest, is_short


def _number(value: Decimal) -> int | float | None:
    """The number that represents only this decimal; None if there is none."""
    numerator, denominator = value.as_integer_ratio()
    if denominator == 1 and LEAST <= numerator <= MOST:
        return numerator
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return float(value) if len(digits) <= DIGITS else None

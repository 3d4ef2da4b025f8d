"""Decimals as big-endian two's complement numbers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sinks.bad_values import refuse
from laminar_dagster.sinks.pieces import Cells

Lines = npt.NDArray[np.uint8]

_TOO_LONG: Final = "have more digits than their type says"
_WORD: Final = 8
_DIGITS_IN_A_WORD: Final = 18


def shortest(array: pa.Array) -> Cells:
    """The unscaled values of 128-bit or 256-bit decimals, each in as few bytes as it needs.

    Raises:
        BadValues: A value has more digits than its type says.
    """
    lines = _lines(array)
    if array.type.precision <= _DIGITS_IN_A_WORD:
        lines = _without_head(lines, _WORD)
    sign = _sign(lines)[:, None]
    # A leading byte is dropped if it and those before it only repeat the sign, and the next byte's
    # high bit has the same sign.
    spare = np.logical_and.accumulate(lines[:, :-1] == sign, axis=1)
    spare &= (lines[:, 1:] ^ sign) < 128
    there = np.ones(lines.shape, np.bool_)
    there[:, :-1] = ~spare
    return Cells(lines, there)


def of_size(array: pa.Array, size: int) -> Lines:
    """The unscaled values of 128-bit or 256-bit decimals, in ``size`` bytes each.

    Raises:
        BadValues: A value has more digits than its type says.
    """
    lines = _lines(array)
    width = lines.shape[1]
    if size <= width:
        return _without_head(lines, size)
    made = np.empty((len(lines), size), np.uint8)
    made[:, : size - width] = _sign(lines)[:, None]
    made[:, size - width :] = lines
    return made


def _lines(array: pa.Array) -> Lines:
    width = array.type.bit_width // 8
    size, start = len(array) * width, array.offset * width
    lines = np.frombuffer(array.buffers()[1], np.uint8, size, start).reshape(-1, width)
    return lines[:, ::-1]


def _sign(lines: Lines) -> npt.NDArray[np.uint8]:
    """The sign-extension byte of each value: 255 or 0."""
    return np.where(lines[:, 0] > 127, np.uint8(255), np.uint8(0))


def _without_head(lines: Lines, size: int) -> Lines:
    """The last ``size`` bytes; refuses values whose other bytes are not just sign extension."""
    kept = np.ascontiguousarray(lines[:, -size:])
    head = lines[:, :-size]
    sign = _sign(kept)[:, None]
    refuse((head != sign).any(axis=1), _TOO_LONG)
    return kept

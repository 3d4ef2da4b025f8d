"""Variable-length integers (LEB128) as Avro and Protobuf write them.

All numbers of a column get as many byte cells as the largest needs; a mask marks the cells in use,
and unused ones are not written to the message.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from laminar_dagster.sinks.numbers import Int64s
from laminar_dagster.sinks.pieces import Cells, Fixed, Piece

UInt64s = npt.NDArray[np.uint64]

_GROUP: Final = 7
_LOW: Final = np.uint64(127)


def varints(values: UInt64s) -> Piece:
    """Unsigned varints."""
    largest = int(values.max()) if len(values) else 0
    size = max(1, -(-largest.bit_length() // _GROUP))
    if size == 1:
        return Fixed((("u1", values),))
    cells = np.empty((len(values), size), np.uint8)
    there = np.ones(cells.shape, np.bool_)
    left = values
    for place in range(size):
        cells[:, place] = left & _LOW
        left = left >> np.uint64(_GROUP)
        if place + 1 < size:
            more = left != 0
            there[:, place + 1] = more
            cells[:, place] |= more.view(np.uint8) << np.uint8(_GROUP)
    return Cells(cells, there)


def zigzags(values: Int64s) -> Piece:
    """Signed varints in zigzag form."""
    return varints(zigzag(values))


def zigzag(values: Int64s) -> UInt64s:
    """Map signed to unsigned numbers, with the sign in the lowest bit."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_bytes(value: int) -> bytes:
    """One unsigned varint."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= _GROUP
    return bytes([*made, value])

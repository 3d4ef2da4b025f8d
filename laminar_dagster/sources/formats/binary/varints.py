"""Reads varints, seven bits a byte, lowest first, as Avro and Protobuf write them.

The first byte of every lane is read; for one-byte values nothing more is done. For the others the
eight bytes at the cursor are loaded as one word: the lowest byte with its highest bit clear is the
last one, and three shifts close the gaps between the groups of seven bits. Only varints longer
than eight bytes, such as a negative number in Protobuf, take two more loads.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from laminar_dagster.sources.formats.binary.lanes import CUT_OFF, Int64s, Lanes, UInt64s

_U: Final = np.uint64
_MORE: Final = _U(0x8080808080808080)
_BITS: Final = _U(0x7F7F7F7F7F7F7F7F)
_ONE: Final = _U(1)
_LARGEST_SIZE: Final = 10


def read_unsigned(lanes: Lanes, what: str) -> UInt64s:
    """An integer of up to 64 bits of every lane; zero where it is cut off or too long."""
    at = lanes.at
    first = lanes.body.raw[at]
    values = first.astype(np.uint64)
    lanes.at = at + 1
    longer = np.flatnonzero(first > 127)
    if len(longer):
        wide, sizes = _several_bytes(lanes, at[longer])
        values[longer] = wide
        lanes.at[longer] += sizes - 1
        too_long = longer[sizes > _LARGEST_SIZE]
        if len(too_long):
            # With fewer bytes left it is cut off: do not judge by the next record's bytes.
            cut = lanes.end[too_long] - at[too_long] < _LARGEST_SIZE
            lanes.lose(too_long[~cut], f"{what} is longer than 64 bits")
            values[too_long] = 0
    lost = lanes.keep_inside(what)
    if lost is not None:
        values[lost] = 0
    return values


def read_signed(lanes: Lanes, what: str) -> Int64s:
    """A zigzag integer of up to 64 bits of every lane; zero where it is cut off or too long."""
    return zigzag(read_unsigned(lanes, what))


def zigzag(values: UInt64s) -> Int64s:
    """Decode zigzag numbers, whose lowest bit is the sign."""
    signed: Int64s = ((values >> _ONE) ^ (~(values & _ONE) + _ONE)).view(np.int64)
    return signed


def read_length(lanes: Lanes, what: str, *, signed: bool) -> Int64s:
    """The length of a value, checked to lie within the record; zero where it does not."""
    lengths: Int64s
    if signed:
        lengths = read_signed(lanes, f"the length of {what}")
    else:
        lengths = read_unsigned(lanes, f"the length of {what}").view(np.int64)
    room = lanes.end - lanes.at
    # Compared as unsigned, a negative length is larger than any room.
    odd = lengths.view(np.uint64) > room.view(np.uint64)
    if odd.any():
        lost = np.flatnonzero(odd)
        negative = signed & (lengths[lost] < 0)
        lanes.lose(lost[negative], f"the length of {what} is negative")
        lanes.lose(lost[~negative], CUT_OFF.format(what))
        lengths[lost] = 0
    return lengths


def _several_bytes(lanes: Lanes, at: Int64s) -> tuple[UInt64s, Int64s]:
    """The integers at some places, and how many bytes each takes; 11 if longer than 64 bits."""
    words = lanes.body.words[at]
    last = ~words & _MORE
    last &= ~last + _ONE
    below = last - _ONE
    sizes: Int64s = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
    values = words & (below | last) & _BITS
    values = _close(values, 0x007F007F007F007F, 1)
    values = _close(values, 0x00003FFF00003FFF, 2)
    values = _close(values, 0x000000000FFFFFFF, 4)
    longer = np.flatnonzero(sizes > 8)
    if len(longer):
        ninth = lanes.body.raw[at[longer] + 8].astype(np.uint64)
        tenth = lanes.body.raw[at[longer] + 9].astype(np.uint64)
        two = ninth > 127
        values[longer] |= (ninth & _U(127)) << _U(56)
        values[longer] |= np.where(two, tenth << _U(63), _U(0))
        sizes[longer] = np.where(two, np.where(tenth > 1, _LARGEST_SIZE + 1, 10), 9)
    return values, sizes


def _close(values: UInt64s, low: int, shift: int) -> UInt64s:
    """Move the upper half of each pair of groups next to the lower one."""
    kept = values & _U(low)
    return kept | ((values ^ kept) >> _U(shift))


def read_one_unsigned(raw: memoryview, at: int, end: int, what: str) -> tuple[int, int]:
    """Read one integer, and return it with its end.

    Raises:
        ValueError: It is cut off or too long.
    """
    value = shift = 0
    begin = at
    stop = min(end, at + _LARGEST_SIZE)
    while at < stop:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                break
            return value, at
        shift += 7
    cut = at == end and at < begin + _LARGEST_SIZE
    raise ValueError(CUT_OFF.format(what) if cut else f"{what} is longer than 64 bits")

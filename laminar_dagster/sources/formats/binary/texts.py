"""Builds Arrow columns of texts and bytes from their starts and lengths in a body.

The bytes are not copied one by one. An Arrow array over the whole body, whose offsets alternate
between the beginning and the end of each text, has the texts at its even places and the bytes
between them at the odd ones, without a copy. Taking the even places yields the column.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.binary.lanes import Body, Int64s, Lanes

_LARGEST_OFFSET: Final = 2**31 - 1


def bytes_column(body: Body, starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """The bytes at some places, as a column of BINARY."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    ends = starts + lengths
    if (starts[1:] < ends[:-1]).any():
        return _gathered(body, starts, lengths)
    small = len(body.raw) <= _LARGEST_OFFSET
    offsets = np.empty(2 * count, np.int32 if small else np.int64)
    even = np.arange(0, 2 * count, 2)
    offsets[0::2] = starts
    offsets[1::2] = ends
    kind = pa.binary() if small else pa.large_binary()
    between = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(offsets), body.buffer], null_count=0
    )
    found = between.take(pa.array(even))
    return found if small else found.cast(pa.binary())


def text_column(lanes: Lanes, starts: Int64s, lengths: Int64s, what: str) -> pa.StringArray:
    """The texts at some places, one a lane, as a STRING column; records not in UTF-8 are bad."""
    found = bytes_column(lanes.body, starts, lengths)
    text = _as_text(found)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        odd = _not_utf8(found)
        lanes.refuse(odd, f"{what} is not UTF-8")
        keep = np.ones(len(found), np.bool_)
        keep[odd] = False
        return _as_text(pc.if_else(pa.array(keep), found, b""))
    return text


def _as_text(found: pa.BinaryArray) -> pa.StringArray:
    return pa.Array.from_buffers(pa.string(), len(found), found.buffers(), null_count=0)


def _gathered(body: Body, starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """The bytes at places in any order, which may overlap."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(body.raw[places])]
    large = pa.Array.from_buffers(pa.large_binary(), len(starts), buffers, null_count=0)
    return large.cast(pa.binary())


def _not_utf8(found: pa.BinaryArray) -> Int64s:
    """Which values are not UTF-8: values that are not pure ASCII are decoded one by one."""
    offsets = np.frombuffer(found.buffers()[1], np.int32)[: len(found) + 1]
    data = np.frombuffer(found.buffers()[2], np.uint8)
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data > 127, out=before[1:])
    candidates = np.flatnonzero(before[offsets[1:]] > before[offsets[:-1]])
    odd = [place for place in candidates.tolist() if not _is_utf8(found[place].as_py())]
    return np.array(odd, np.int64)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

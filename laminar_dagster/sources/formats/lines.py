"""Lays out single values, such as messages, as contiguous records."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.records import Offsets, Records

_NEWLINE: Final = ord("\n")
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_SPACE: Final = ord(" ")

Bytes = npt.NDArray[np.uint8]


def as_records(values: pa.BinaryArray, positions: Offsets) -> Records:
    """The values unchanged, end to end. None of them may be null."""
    edges, data = edges_of(values)
    return Records(data.tobytes(), edges[:-1], edges[1:], positions, are_lines=False)


def as_lines(values: pa.BinaryArray, positions: Offsets) -> Records:
    """The values, each ended by a newline, added where it is missing. None may be null."""
    edges, raw = edges_of(values)
    lengths = np.diff(edges)
    has_newline = np.zeros(len(values), np.bool_)
    has_newline[lengths > 0] = raw[edges[1:][lengths > 0] - 1] == _NEWLINE
    separator = pa.scalar(b"\n", pa.binary())
    if has_newline.any():
        separator = pc.if_else(pa.array(has_newline), pa.scalar(b"", pa.binary()), separator)
    joined = pc.binary_join_element_wise(values, pa.scalar(b"", pa.binary()), separator)
    edges, data = edges_of(joined)
    return Records(data.tobytes(), edges[:-1], edges[1:], positions)


def edges_of(values: pa.BinaryArray) -> tuple[Offsets, Bytes]:
    """The offsets of the values and of the last one's end, with the bytes, not copied."""
    if not len(values):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    first, last = int(edges[0]), int(edges[-1])
    raw = np.frombuffer(data, np.uint8)[first:last] if data else np.empty(0, np.uint8)
    return edges.astype(np.int64) - first, raw


def folded(records: Records) -> tuple[Records, Offsets]:
    """Replace the newlines in records of JSON by spaces, so that each is one line.

    Returns:
        The lines, and which of them have a newline inside a string, where JSON allows none.
    """
    inner, owner = _inner_newlines(records)
    if not len(inner):
        return records, inner
    raw = np.frombuffer(records.data, np.uint8).copy()
    quotes = np.setdiff1d(np.flatnonzero(raw == _QUOTE), _escaped(raw), assume_unique=True)
    inside = _are_quoted(inner, owner, quotes, records)
    raw[inner] = _SPACE
    return replace(records, data=raw.tobytes()), np.unique(owner[inside])


def several_records(records: Records) -> Offsets:
    """Which records of CSV hold a newline outside of quotes, and so more than one line."""
    inner, owner = _inner_newlines(records)
    if not len(inner):
        return inner
    quotes = np.flatnonzero(np.frombuffer(records.data, np.uint8) == _QUOTE)
    return np.unique(owner[~_are_quoted(inner, owner, quotes, records)])


def _inner_newlines(records: Records) -> tuple[Offsets, Offsets]:
    """The newlines within records, and the places of the records that hold them."""
    nothing = np.empty(0, np.int64)
    if records.data.count(b"\n") == len(records):
        return nothing, nothing
    newlines = np.flatnonzero(np.frombuffer(records.data, np.uint8) == _NEWLINE)
    owner = np.searchsorted(records.ends, newlines, side="right")
    is_inner = newlines != records.ends[owner] - 1
    return newlines[is_inner], owner[is_inner]


def _are_quoted(
    places: Offsets, owner: Offsets, quotes: Offsets, records: Records
) -> npt.NDArray[np.bool_]:
    """Which places are within quotes: after an odd number of quotes in their record."""
    before = np.searchsorted(quotes, places) - np.searchsorted(quotes, records.starts[owner])
    odd: npt.NDArray[np.bool_] = before % 2 == 1
    return odd


def _escaped(raw: Bytes) -> Offsets:
    """The offsets right after an odd number of backslashes."""
    slashes = np.flatnonzero(raw == _BACKSLASH)
    if not len(slashes):
        return slashes
    firsts = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    lengths = np.diff(np.append(firsts, len(slashes)))
    behind: Offsets = slashes[firsts + lengths - 1][lengths % 2 == 1] + 1
    return behind

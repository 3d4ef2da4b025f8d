r"""Splits texts of PostgreSQL arrays, such as ``{1,NULL,"a \"b\""}``, a whole column at once.

Which bytes are escaped or quoted follows from the number of backslashes and quotes that precede
them in their text. Elements end at commas and braces outside quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.binary.lanes import PADDING, Body, Int64s
from laminar_dagster.sources.formats.binary.texts import bytes_column
from laminar_dagster.sources.formats.columns import BadRows

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH = b'{},"\\'
_NOT_ONE: Final = "it is no array of one dimension"


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of all arrays of a column, one after the other.

    Attributes:
        counts: How many elements each row has; 0 where the row is null or bad.
    """

    elements: pa.StringArray
    counts: Int64s
    bad: BadRows


def split_arrays(texts: pa.StringArray) -> Elements:
    """Split arrays of one dimension into their elements, as texts."""
    data, offsets = packed(pc.fill_null(texts, "{}"))
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    body = Body(data)
    raw = body.raw[PADDING : PADDING + len(data)]
    inside, escaped = _inside_quotes(raw, starts)
    is_mark = ~inside & ((raw == _COMMA) | (raw == _CLOSE))
    opens = np.flatnonzero(~inside & (raw == _OPEN))
    rows_of_opens = np.searchsorted(ends, opens, "right")
    is_good = lengths >= 2
    is_good[is_good] &= (raw[starts[is_good]] == _OPEN) & (raw[ends[is_good] - 1] == _CLOSE)
    is_good &= np.bincount(rows_of_opens, minlength=len(starts)) == 1
    marks = np.flatnonzero(is_mark)
    rows = np.searchsorted(ends, marks, "right")
    bad = {int(row): _NOT_ONE for row in np.flatnonzero(~is_good)}
    is_empty = lengths == 2
    keep = (is_good & ~is_empty)[rows]
    marks, rows = marks[keep], rows[keep]
    counts = np.bincount(rows, minlength=len(starts)).astype(np.int64)
    # An element begins after the previous comma, or after the opening brace.
    first = np.ones(len(marks), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    begins = np.where(first, starts[rows] + 1, np.roll(marks, 1) + 1)
    return Elements(_texts(body, raw, begins, marks, escaped), counts, bad)


def packed(texts: pa.StringArray) -> tuple[bytes, Int64s]:
    """The bytes of texts without nulls, and the offset of each."""
    if not len(texts):
        return b"", np.zeros(1, np.int64)
    _, places, data = texts.buffers()
    edges = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    offsets = edges.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    body: bytes = b"" if data is None else data.slice(first, last - first).to_pybytes()
    return body, offsets - first


def _inside_quotes(raw: np.ndarray, starts: Int64s) -> tuple[np.ndarray, np.ndarray]:
    """Which bytes are between quotes, and which follow an odd number of backslashes."""
    places = np.arange(len(raw))
    is_slash = raw == _BACKSLASH
    last_other = np.maximum.accumulate(np.where(is_slash, -1, places)) if len(raw) else places
    run = np.where(is_slash, places - last_other, 0)
    escaped = np.zeros(len(raw), np.bool_)
    escaped[1:] = run[:-1] % 2 == 1
    quotes = np.cumsum((raw == _QUOTE) & ~escaped)
    before = np.zeros(len(starts), np.int64)
    if len(raw):
        before = np.where(starts > 0, quotes[starts - 1], 0)
    rows = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(raw))))
    return (quotes - before[rows]) % 2 == 1, escaped


def _texts(
    body: Body, raw: np.ndarray, begins: Int64s, ends: Int64s, escaped: np.ndarray
) -> pa.StringArray:
    if not len(begins):
        return pa.array([], pa.string())
    is_quoted = raw[begins] == _QUOTE
    start, length = begins + is_quoted, ends - begins - 2 * is_quoted
    found = bytes_column(body, start + PADDING, length)
    texts = pa.Array.from_buffers(pa.string(), len(found), found.buffers(), null_count=0)
    has_escape = np.zeros(len(raw) + 1, np.int64)
    np.cumsum(escaped, out=has_escape[1:])
    if (has_escape[ends] > has_escape[begins]).any():
        texts = pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
    is_null = pc.and_(pc.equal(pc.utf8_upper(texts), "NULL"), pa.array(~is_quoted))
    return pc.if_else(is_null, pa.scalar(None, pa.string()), texts)

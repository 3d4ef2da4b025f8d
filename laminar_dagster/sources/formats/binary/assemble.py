"""Puts columns together from parts that hold some lanes only, or several values a lane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes


def spread(found: pa.Array, places: Int64s, count: int) -> pa.Array:
    """A column of ``count`` rows with the values at ``places``, ascending, and nulls elsewhere."""
    if len(places) == count:
        return found
    if not len(places):
        return pa.nulls(count, found.type)
    index = np.zeros(count, np.int64)
    index[places] = np.arange(len(places))
    nothing = np.ones(count, np.bool_)
    nothing[places] = False
    return found.take(pa.array(index, mask=nothing))


def merge(parts: Sequence[tuple[pa.Array, Int64s]], kind: pa.DataType, count: int) -> pa.Array:
    """A column of ``count`` rows from parts with the places of their rows; null elsewhere.

    The places of each part ascend.
    """
    filled = [part for part in parts if len(part[1])]
    if not filled:
        return pa.nulls(count, kind)
    if len(filled) == 1:
        return spread(*filled[0], count)
    index = np.full(count, -1, np.int64)
    places = np.concatenate([each for _, each in filled])
    index[places] = np.arange(len(places))
    return pa.concat_arrays([found for found, _ in filled]).take(pa.array(index, mask=index < 0))


def offsets_of(counts: Int64s) -> pa.Array:
    """The offset of each row's first value, and the end of the last row."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    # Cannot overflow: more than 2^31 values would need as many bytes.
    return pa.array(offsets.astype(np.int32))


def list_column(counts: Int64s, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of ARRAY."""
    return pa.ListArray.from_arrays(offsets_of(counts), values, type=kind)


def map_column(
    lanes: Lanes, counts: Int64s, keys: pa.Array, values: pa.Array, kind: pa.DataType, what: str
) -> pa.Array:
    """A column of MAP; refuses the records in which a map has a key twice."""
    if len(keys):
        rows = np.repeat(np.arange(len(counts)), counts)
        encoded = keys.dictionary_encode()
        pairs = rows * len(encoded.dictionary) + encoded.indices.to_numpy()
        order = np.argsort(pairs, kind="stable")
        again = order[1:][pairs[order][1:] == pairs[order][:-1]]
        if len(again):
            lanes.refuse(np.unique(rows[again]), f"a key of {what} stands twice")
    return pa.MapArray.from_arrays(offsets_of(counts), keys, values, type=kind)

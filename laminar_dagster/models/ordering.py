"""Numbers keys and sorts rows, so that results do not depend on arrival order. Arrow only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Whole = npt.NDArray[np.int64]


def key_numbers(keys: pa.Table) -> Whole:
    """The rank of each row's key among all keys; equal keys have the same rank."""
    numbers = np.zeros(keys.num_rows, np.int64)
    for column in keys.itercolumns():
        found = ranks(column)
        combined = numbers * (int(found.max(initial=0)) + 1) + found
        numbers = np.unique(combined, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def ranks(column: pa.ChunkedArray) -> Whole:
    """The rank of each value among all values; equal values have the same, and null the last."""
    encoded = one_array(column).dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: Whole = rank[encoded.indices.to_numpy()]
    return found


def in_order(numbers: Whole, times: Whole, rows: pa.Table) -> Whole:
    """The indices that sort rows by key and time, and ties by all of their columns."""
    columns: list[Any] = [pa.array(numbers), pa.array(times)]
    for column in rows.itercolumns():
        columns.append(column)
        if pa.types.is_floating(column.type):
            # Sort ties by bits too: 0.0 = -0.0 and all NaNs are equal, but their bits differ.
            floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
            columns.append(pa.array(floats.view(np.int64)))
    names = [f"c{number}" for number in range(len(columns))]
    order = pc.sort_indices(
        pa.table(columns, names=names), sort_keys=[(name, "ascending") for name in names]
    )
    found: Whole = order.to_numpy().astype(np.int64)
    return found


def one_array(column: Any) -> Any:
    """A column as a single array instead of chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

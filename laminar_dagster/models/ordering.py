"""Keys numbered, and rows put in order: so that no order of arrival matters. In Arrow alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Whole = npt.NDArray[np.int64]


def key_numbers(keys: pa.Table) -> Whole:
    """The place of each row's key among all of them, in the order of keys; equal ones share it."""
    numbers = np.zeros(keys.num_rows, np.int64)
    for column in keys.itercolumns():
        found = ranks(column)
        combined = numbers * (int(found.max(initial=0)) + 1) + found
        numbers = np.unique(combined, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def ranks(column: pa.ChunkedArray) -> Whole:
    """The place of each value among all of them; equal ones share it, and null is the last."""
    encoded = one_array(column).dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found: Whole = rank[encoded.indices.to_numpy()]
    return found


def in_order(numbers: Whole, times: Whole, rows: pa.Table) -> Whole:
    """Where rows stand by key and time; where that leaves it open, by all of their columns."""
    columns: list[Any] = [pa.array(numbers), pa.array(times)]
    for column in rows.itercolumns():
        columns.append(column)
        if pa.types.is_floating(column.type):
            # Two zeros are equal, and so are NaNs, but their bits are not.
            floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
            columns.append(pa.array(floats.view(np.int64)))
    names = [f"c{number}" for number in range(len(columns))]
    order = pc.sort_indices(
        pa.table(columns, names=names), sort_keys=[(name, "ascending") for name in names]
    )
    found: Whole = order.to_numpy().astype(np.int64)
    return found


def one_array(column: Any) -> Any:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

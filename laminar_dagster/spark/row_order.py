"""Rows beside the row before them, and floats in the order of SQL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Booleans = npt.NDArray[np.bool_]


def differs_from_previous(rows: pa.Table, names: Sequence[str]) -> Booleans:
    """Which rows differ from the row before them in one of some columns; the first one does.

    Nulls are alike, and so are NaNs. Values without an order, such as arrays, count as other ones.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    if not rows.num_rows:
        return found
    found[0] = True
    for name in names:
        found[1:] |= _changed(rows.column(name))
    return found


def _changed(column: pa.ChunkedArray) -> Booleans:
    if pa.types.is_nested(column.type):
        return np.ones(len(column) - 1, np.bool_)
    values = ordered_bits(column) if pa.types.is_floating(column.type) else column
    array = values.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    before, after = array.slice(0, len(array) - 1), array.slice(1)
    other = pc.fill_null(pc.not_equal(before, after), False)
    one_is_null = pc.xor(before.is_null(), after.is_null())
    found: Booleans = pc.or_(other, one_is_null).to_numpy(zero_copy_only=False)
    return found


# --- floats in the order of SQL, in which NaN is the largest ------------------------------------


def ordered_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers that compare as the floats do. Arrow's own MIN and MAX leave out NaN."""
    valid = pc.is_valid(values)
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    # One NaN, and one zero.
    floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
    bits = floats.view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.chunked_array([pa.array(ordered, pa.int64(), mask=mask)])


def from_ordered_bits(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The floats of such numbers."""
    valid = pc.is_valid(values)
    ordered = pc.fill_null(values, 0).to_numpy()
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    floats = pa.array(bits.view(np.float64), pa.float64(), mask=mask, from_pandas=False)
    return pa.chunked_array([floats]).cast(kind)

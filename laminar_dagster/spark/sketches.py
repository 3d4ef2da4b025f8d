"""Sketches: approximate distinct counts and quantiles, in little space and with a known error.

Both merge to the same bytes in any order and batching, which rules out sketches that sample (KLL)
or cluster (t-digest).

*Distinct values* (HyperLogLog): the first ``precision`` bits of a 64-bit hash choose a register,
which keeps the largest number of leading zeros in the remaining bits, plus one. State is a sorted
list of the registers that are not 0, as ``register * 64 + zeros``. The count is estimated with
Ertl's method ("New cardinality estimation algorithms for HyperLogLog sketches", 2017), which works
in all ranges without tables; the standard error is 1.04 / sqrt(2 ** precision).

*Quantiles* (DDSketch with linear buckets): values are counted in buckets of equal sign, exponent
and first ``bits`` of the mantissa. A quantile is the middle of its bucket, so the relative error is
at most 2 ** -(bits + 1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.multisets import offsets_of, one_array
from laminar_dagster.spark.row_order import from_ordered_bits, ordered_bits

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

REGISTERS: Final = pa.list_(pa.int32())
_MANTISSA: Final = 52
_INFINITE: Final = 0x7FF << _MANTISSA
_ZEROS: Final = 64


# --- distinct values ----------------------------------------------------------------------------


def registers(hashes: Any, groups: Numbers, count: int, precision: int) -> pa.ListArray:
    """The registers of each group, of the hashes of its values; null is left out."""
    array = one_array(hashes)
    keep = array.is_valid().to_numpy(zero_copy_only=False)
    bits = array.drop_null().to_numpy().view(np.uint64)
    number = (bits >> np.uint64(64 - precision)).astype(np.int64)
    # A 1 bit after the remaining bits bounds the count of leading zeros.
    rest = (bits << np.uint64(precision)) | np.uint64(1 << (precision - 1))
    return _largest(number * _ZEROS + _leading_zeros(rest) + 1, groups[keep], count)


def merged_registers(lists: Any, groups: Numbers, count: int) -> pa.ListArray:
    """Merge the registers of the rows of each group: the largest of each register."""
    array = one_array(lists)
    owners = groups[pc.list_parent_indices(array).to_numpy()]
    return _largest(pc.list_flatten(array).to_numpy().astype(np.int64), owners, count)


def _largest(codes: Numbers, groups: Numbers, count: int) -> pa.ListArray:
    order = np.lexsort((codes, groups))
    codes, groups = codes[order], groups[order]
    is_last = np.ones(len(codes), np.bool_)
    is_last[:-1] = (codes[1:] // _ZEROS != codes[:-1] // _ZEROS) | (groups[1:] != groups[:-1])
    kept = pa.array(codes[is_last].astype(np.int32))
    return pa.ListArray.from_arrays(offsets_of(groups[is_last], count), kept)


def _leading_zeros(bits: npt.NDArray[np.uint64]) -> Numbers:
    """The number of leading zero bits of 64-bit numbers."""
    found = np.zeros(len(bits), np.int64)
    left = bits.copy()
    for width in (32, 16, 8, 4, 2, 1):
        is_empty = left < np.uint64(1) << np.uint64(64 - width)
        found += np.where(is_empty, width, 0)
        left = np.where(is_empty, left << np.uint64(width), left)
    return found


def estimated(lists: Any, precision: int) -> Numbers:
    """Estimate the number of distinct values from the registers of each row."""
    array = one_array(lists)
    count, size, most = len(array), 2**precision, 64 - precision
    owners = pc.list_parent_indices(array).to_numpy()
    zeros = pc.list_flatten(array).to_numpy() % _ZEROS
    # Histogram of register values for each row.
    held = np.bincount(owners * _ZEROS + zeros, minlength=count * _ZEROS).reshape(count, _ZEROS)
    empty = size - held.sum(axis=1)
    z = size * _tau(1 - held[:, most + 1] / size)
    for number in range(most, 0, -1):
        z = 0.5 * (z + held[:, number])
    with np.errstate(divide="ignore"):
        z = z + size * _sigma(empty / size)
        found = size / (2 * np.log(2)) * size / z
    whole: Numbers = np.rint(found).astype(np.int64)
    return whole


def _sigma(share: Floats) -> Floats:
    """Ertl's correction for registers that are still 0; infinite if all are."""
    x, y, z = share.copy(), np.ones(len(share)), share.copy()
    for _ in range(_ZEROS):
        x = x * x
        z = z + x * y
        y = y + y
    return np.where(share == 1.0, np.inf, z)


def _tau(share: Floats) -> Floats:
    """Ertl's correction for registers that are full."""
    x, y, z = share.copy(), np.ones(len(share)), 1 - share
    for _ in range(_ZEROS):
        x = np.sqrt(x)
        y = 0.5 * y
        z = z - (1 - x) ** 2 * y
    found: Floats = np.where((share == 0.0) | (share == 1.0), 0.0, z / 3)
    return found


# --- quantiles ----------------------------------------------------------------------------------


def buckets(values: Any, bits: int) -> pa.Array:
    """The bucket of each number; bucket numbers sort like the numbers."""
    array = one_array(values)
    wide = pa.chunked_array([array.cast(pa.float64())])
    ordered = one_array(ordered_bits(wide))
    return pc.shift_right(ordered, pa.scalar(_MANTISSA - bits, pa.int64()))


def middles(numbers: Any, bits: int) -> pa.Array:
    """The number in the middle of each bucket."""
    array = one_array(numbers)
    shift = _MANTISSA - bits
    bucket = pc.fill_null(array, 0).to_numpy()
    middle = (bucket << shift) + (1 << (shift - 1))
    middle = np.where(bucket == 0, 0, middle)
    # The buckets of infinities hold nothing else: their "middle" is infinity itself, not a NaN.
    middle = np.where(bucket << shift == _INFINITE, _INFINITE, middle)
    middle = np.where((bucket + 1) << shift == -_INFINITE, -_INFINITE - 1, middle)
    floats = from_ordered_bits(pa.chunked_array([pa.array(middle)]), pa.float64())
    return pc.if_else(array.is_valid(), one_array(floats), None)

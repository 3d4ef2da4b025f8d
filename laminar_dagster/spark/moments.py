"""Statistical moments of groups: the partials of variance, skewness, kurtosis and correlation.

They are kept about the mean, and merged by the means' distances (Chan, Golub and LeVeque): so a
small variance beside a large mean is not lost, as it would be in a sum of squares. Sums are formed
in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.multisets import one_array

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOMENTS: Final = ("mean", "m2")
_HIGHER: Final = ("mean", "m2", "m3", "m4")
_PAIRED: Final = ("mean0", "mean1", "m2_0", "m2_1", "c")


def _struct(names: Sequence[str]) -> pa.DataType:
    return pa.struct([pa.field("n", pa.int64()), *(pa.field(each, pa.float64()) for each in names)])


MOMENTS: Final = _struct(_MOMENTS)
HIGHER_MOMENTS: Final = _struct(_HIGHER)
PAIRED_MOMENTS: Final = _struct(_PAIRED)


def moments(
    values: Any, counts: Numbers, groups: Numbers, count: int, *, kind: pa.DataType = MOMENTS
) -> pa.StructArray:
    """For each group the number of its values, their mean, and moments about it.

    Args:
        values: Numbers; null is left out.
        counts: The count of each value.
        groups: The number of the group of each value.
        count: The number of groups.
        kind: ``MOMENTS``, or ``HIGHER_MOMENTS`` up to the fourth.
    """
    (plain,), counts, groups = _known([values], counts, groups)
    parts = {"mean": plain, **dict.fromkeys(kind.names[2:], np.zeros(len(plain)))}
    return _merged(parts, counts, groups, count, kind)


def merged_moments(structs: Any, groups: Numbers, count: int) -> pa.StructArray:
    """Merge the moments of the rows of each group."""
    array = one_array(structs)
    parts, counts = _fields(array)
    return _merged(parts, counts, groups, count, array.type)


def _merged(
    parts: Mapping[str, Floats], counts: Numbers, groups: Numbers, count: int, kind: pa.DataType
) -> pa.StructArray:
    n = _sums(counts, groups, count)
    with np.errstate(all="ignore"):
        mean = np.where(n > 0, _sums(counts * parts["mean"], groups, count) / np.maximum(n, 1), 0.0)
        away = parts["mean"] - mean[groups]
        square = away * away
        found = {"mean": mean}
        found["m2"] = _sums(parts["m2"] + counts * square, groups, count)
        if "m3" in parts:
            third = parts["m3"] + 3 * away * parts["m2"] + counts * square * away
            fourth = parts["m4"] + 4 * away * parts["m3"] + 6 * square * parts["m2"]
            found["m3"] = _sums(third, groups, count)
            found["m4"] = _sums(fourth + counts * square * square, groups, count)
    return _built(n, found, kind)


def paired_moments(
    values: Sequence[Any], counts: Numbers, groups: Numbers, count: int
) -> pa.StructArray:
    """Means, second moments and co-moment of two columns by group; rows with a null left out."""
    (first, second), counts, groups = _known(values, counts, groups)
    nothing = np.zeros(len(counts))
    parts = {"mean0": first, "mean1": second, "m2_0": nothing, "m2_1": nothing, "c": nothing}
    return _merged_pairs(parts, counts, groups, count)


def merged_paired_moments(structs: Any, groups: Numbers, count: int) -> pa.StructArray:
    """Merge the paired moments of the rows of each group."""
    parts, counts = _fields(one_array(structs))
    return _merged_pairs(parts, counts, groups, count)


def _merged_pairs(
    parts: Mapping[str, Floats], counts: Numbers, groups: Numbers, count: int
) -> pa.StructArray:
    n = _sums(counts, groups, count)
    found: dict[str, Floats] = {}
    away: list[Floats] = []
    with np.errstate(all="ignore"):
        for name in ("mean0", "mean1"):
            total = _sums(counts * parts[name], groups, count)
            found[name] = np.where(n > 0, total / np.maximum(n, 1), 0.0)
            away.append(parts[name] - found[name][groups])
        products = {"m2_0": (0, 0), "m2_1": (1, 1), "c": (0, 1)}
        for name, (left, right) in products.items():
            added = counts * away[left] * away[right]
            found[name] = _sums(parts[name] + added, groups, count)
    return _built(n, found, PAIRED_MOMENTS)


def _known(
    columns: Sequence[Any], counts: Numbers, groups: Numbers
) -> tuple[list[Floats], Numbers, Numbers]:
    """The rows without a null in any column."""
    arrays = [one_array(each) for each in columns]
    keep = np.ones(len(groups), np.bool_)
    for each in arrays:
        keep &= each.is_valid().to_numpy(zero_copy_only=False)
    mask = pa.array(keep)
    plain = [pc.cast(each.filter(mask), pa.float64()).to_numpy() for each in arrays]
    return plain, counts[keep], groups[keep]


def _fields(array: Any) -> tuple[dict[str, Floats], Numbers]:
    # Rows older than an added aggregate have null here: read it as moments of no values.
    names = [each.name for each in array.type]
    columns = {name: pc.fill_null(pc.struct_field(array, name), 0).to_numpy() for name in names}
    return columns, columns.pop("n")


def _sums(values: Any, groups: Numbers, count: int) -> Any:
    """Sums of groups, added in the order of rows."""
    found = np.bincount(groups, weights=values, minlength=count)
    # Without rows, bincount ignores the weights and returns integers.
    return found.astype(values.dtype)


def _built(n: Numbers, found: Mapping[str, Floats], kind: pa.DataType) -> pa.StructArray:
    columns = [pa.array(n), *(pa.array(found[name], from_pandas=False) for name in kind.names[1:])]
    return pa.StructArray.from_arrays(columns, fields=list(kind))

"""Matches the rows of two join sides: vectorised, without a loop over rows.

Rows of the right are sorted by key and time; the partners of a left row are then a range of them,
found by binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.columns import TIME
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.row_order import ordered_bits

if TYPE_CHECKING:
    from laminar_dagster.config.relations import ComparisonOperator

Whole = npt.NDArray[np.int64]

# Codes for keys with a null, left and right: they differ, because NULL never matches.
_NO_KEY: Final = (-1, -2)
_COMPARE: Final[dict[ComparisonOperator, Callable[[Any, Any], Any]]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<>": pc.not_equal,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition on which a left row and a right row match.

    Attributes:
        keys: The columns that must be equal, and not null.
        bounds: The smallest and largest allowed value of right time minus left time.
        compared: Columns with an operator: left value, operator, right value must hold.
        is_turned: The sides are swapped: operators apply with the right value first.
    """

    keys: tuple[str, ...]
    bounds: tuple[int, int] | None = None
    compared: tuple[tuple[str, ComparisonOperator], ...] = ()
    is_turned: bool = False

    @property
    def turned(self) -> Rule:
        """The same rule with the sides swapped."""
        bounds = None if self.bounds is None else (-self.bounds[1], -self.bounds[0])
        return Rule(self.keys, bounds, self.compared, not self.is_turned)

    def pairs(self, left: pa.Table, right: pa.Table) -> tuple[Whole, Whole]:
        """The row indices, left and right, of all matching pairs."""
        ranges = _ranges(left, right, self)
        held = ranges.last - ranges.first
        before = np.cumsum(held) - held
        total = int(held.sum())
        places = np.repeat(ranges.first - before, held) + np.arange(total)
        one, other = np.repeat(np.arange(left.num_rows), held), ranges.order[places]
        for name, operator in self.compared:
            values = _taken(left.column(name), one), _taken(right.column(name), other)
            found = _COMPARE[operator](*(reversed(values) if self.is_turned else values))
            fits = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
            one, other = one[fits], other[fits]
        return one, other

    def partners(self, left: pa.Table, right: pa.Table) -> Whole:
        """For each left row the sum of the weights of its matching right rows."""
        weights = right.column(WEIGHT).to_numpy()
        if self.compared:
            one, other = self.pairs(left, right)
            summed = np.zeros(left.num_rows, np.int64)
            np.add.at(summed, one, weights[other])
            return summed
        found = _ranges(left, right, self)
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(weights[found.order])))
        counted: Whole = sums[found.last] - sums[found.first]
        return counted


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The sort order of the right, and for each left row the range of its partners in it."""

    order: Whole
    first: Whole
    last: Whole


def _ranges(left: pa.Table, right: pa.Table, rule: Rule) -> _Ranges:
    codes, others = _codes(left, right, rule.keys)
    if rule.bounds is None:
        order = np.argsort(others, kind="stable")
        stored = others[order]
        first, last = (np.searchsorted(stored, codes, side) for side in ("left", "right"))
        return _Ranges(order, first, last)
    times, their_times = left.column(TIME).to_numpy(), right.column(TIME).to_numpy()
    known = np.unique(their_times)
    # Key and time in one number: times are replaced by ranks below `width`, so keys stay apart.
    width = len(known) + 1
    stored = others * width + np.searchsorted(known, their_times)
    order = np.argsort(stored, kind="stable")
    stored = stored[order]
    least = np.searchsorted(known, times + rule.bounds[0], "left")
    most = np.searchsorted(known, times + rule.bounds[1], "right")
    first = np.searchsorted(stored, codes * width + least, "left")
    last = np.searchsorted(stored, codes * width + most, "left")
    return _Ranges(order, first, np.maximum(first, last))


def _codes(left: pa.Table, right: pa.Table, keys: Sequence[str]) -> tuple[Whole, Whole]:
    """Integer codes of the keys of both sides; equal keys have equal codes."""
    count = left.num_rows
    codes = np.zeros(count + right.num_rows, np.int64)
    is_null = np.zeros(len(codes), np.bool_)
    for name in keys:
        both = pa.chunked_array(
            [*left.column(name).chunks, *right.column(name).chunks], left.schema.field(name).type
        )
        is_null |= pc.is_null(both).to_numpy(zero_copy_only=False)
        codes = _combined(codes, _numbered(both))
    codes[:count][is_null[:count]] = _NO_KEY[0]
    codes[count:][is_null[count:]] = _NO_KEY[1]
    return codes[:count], codes[count:]


def _numbered(column: pa.ChunkedArray) -> Whole:
    values = ordered_bits(column) if pa.types.is_floating(column.type) else column
    whole = values.combine_chunks()
    array = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if not len(array):
        return np.empty(0, np.int64)
    indices = pc.fill_null(array.dictionary_encode().indices, 0)
    numbers: Whole = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _combined(codes: Whole, more: Whole) -> Whole:
    if not len(more):
        return codes
    _, combined = np.unique(codes * (int(more.max()) + 1) + more, return_inverse=True)
    found: Whole = combined.astype(np.int64)
    return found


def _taken(column: pa.ChunkedArray, places: Whole) -> pa.ChunkedArray:
    """The values at these indices; floats as ordered bits, so that NaN compares as in SQL."""
    values = ordered_bits(column) if pa.types.is_floating(column.type) else column
    return values.take(pa.array(places))

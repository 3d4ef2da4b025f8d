"""Which rows of two sides belong together. In columns, without a loop over rows.

Rows of the right are put in order by key and time; the partners of a row of the left are then a
range of them, found by searching.
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

# A key with a null in it is none that the other side could have.
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
    """When a row of the left and one of the right belong together.

    Attributes:
        keys: Columns that are equal, and not null.
        bounds: The smallest and largest time of the right minus that of the left.
        compared: Columns, and how that of the left stands to that of the right.
        is_turned: The sides have changed over: it is how that of the right stands to the left.
    """

    keys: tuple[str, ...]
    bounds: tuple[int, int] | None = None
    compared: tuple[tuple[str, ComparisonOperator], ...] = ()
    is_turned: bool = False

    @property
    def turned(self) -> Rule:
        """The same with the sides changed over."""
        bounds = None if self.bounds is None else (-self.bounds[1], -self.bounds[0])
        return Rule(self.keys, bounds, self.compared, not self.is_turned)

    def pairs(self, left: pa.Table, right: pa.Table) -> tuple[Whole, Whole]:
        """Places of the left and of the right that belong together."""
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
        """How many rows of the right, by weight, belong to each of the left."""
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
    """Rows of the right in order; and for each row of the left, which of them are its partners."""

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
    # A key and a time as one number: a time is its place among all, so none reaches the next key.
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
    """A number for each key, the same on both sides."""
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
    """Values at some places, in a form in which they compare as in SQL."""
    values = ordered_bits(column) if pa.types.is_floating(column.type) else column
    return values.take(pa.array(places))

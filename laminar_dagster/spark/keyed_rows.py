"""Rows of one key brought together: numbered by key, cut into sessions, and merged. In Arrow alone.

Rows are compared in columns, with the row before them. There is no loop over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.spark.row_order import (
    Booleans,
    Place,
    Whole,
    by_numbers,
    differs_from_previous,
    in_order,
    key_codes,
    sorted_by,
)

NUMBER: Final = "_number"
# +1 for a row that comes, -1 for one that is taken back: a column that views and sinks see.
WEIGHT: Final = "_weight"


def numbered(
    rows: pa.Table, unit: Sequence[str], times: tuple[str, str] | None = None, gap: int = 0
) -> tuple[pa.Table, Booleans]:
    """Rows that belong together side by side, with the number of that; and which row begins each.

    Args:
        rows: In the order in which they are to be merged.
        unit: The columns that rows of one key have in common.
        times: The columns of the first and the last event of a row, where keys live in sessions.
        gap: A row that begins so long after every earlier one of its key begins a new session.
    """
    codes = key_codes(rows, unit)
    ordered = rows
    if unit or times:
        began = [Place(times[0], descending=False, nulls_first=False)] if times else []
        # What is equal stays in its order.
        places = in_order(rows, [codes], began, ())
        ordered, codes = rows.take(pa.array(places)), codes[places]
    begins = np.diff(codes, prepend=-1) != 0
    if times and len(begins):
        first, last = (ordered.column(name).to_numpy() for name in times)
        reach = _latest_so_far(last, np.cumsum(begins))
        begins[1:] |= first[1:] >= reach[:-1] + gap
    number = pa.array(np.cumsum(begins, dtype=np.int64))
    return ordered.append_column(NUMBER, number), begins


def _latest_so_far(times: Whole, groups: Whole) -> Whole:
    """The largest time up to each row within its group; groups are numbered from 1, in order."""
    known, ranks = np.unique(times, return_inverse=True)
    # A later group has a larger number than any of an earlier one, so each begins anew.
    largest = np.maximum.accumulate(groups * len(known) + ranks)
    latest: Whole = known[largest - groups * len(known)]
    return latest


def last_of_each(rows: pa.Table, unit: Sequence[str]) -> pa.Table:
    """The last of the rows that have a key in common, where these stand together."""
    begins = differs_from_previous(rows, unit)
    return rows.filter(pa.array(np.append(begins[1:], True)[: rows.num_rows]))


def once(values: Whole) -> Whole:
    """Sorted values, each once."""
    ordered = np.sort(values)
    found: Whole = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def is_among(values: Whole, wanted: Whole) -> Booleans:
    """Which values are among others, which are sorted."""
    if not len(wanted):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: Booleans = wanted[places] == values
    return found


def changed_rows(
    before: pa.Table,
    after: pa.Table,
    unit: Sequence[str],
    compared: Sequence[str],
    order: Sequence[str],
) -> pa.Table:
    """What has to be taken back, and what has come: rows of both, those that are alike left out.

    Rows of ``before`` get a weight of -1, those of ``after`` 1.

    Args:
        before: Rows of which each has a ``unit`` of its own.
        after: The same.
        unit: By which a row takes the place of another.
        compared: Columns that tell whether it is the same row.
        order: Columns by which the result is sorted.
    """
    both = pa.concat_tables(
        [
            before.append_column(WEIGHT, _full(before.num_rows, -1)),
            after.append_column(WEIGHT, _full(after.num_rows, 1)),
        ]
    )
    # Side by side by number; only what is told is sorted by the keys themselves.
    codes = key_codes(both, unit)
    places = by_numbers((codes, both.column(WEIGHT).to_numpy().astype(np.int64)))
    both, codes = both.take(pa.array(places)), codes[places]
    is_same = ~differs_from_previous(both, compared)
    is_same[1:] &= codes[1:] == codes[:-1]
    keep = ~is_same
    keep[:-1] &= ~is_same[1:]
    told = both if keep.all() else both.filter(pa.array(keep))
    return sorted_by(told, order)


def _full(count: int, value: int) -> Any:
    return pa.array(np.full(count, value, np.int8))

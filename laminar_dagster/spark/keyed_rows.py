"""Groups rows by key or session, and finds the rows that changed. Arrow and numpy only.

Vectorised: sorted rows are compared with the row before them, without a loop over rows.
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
# +1 for an insertion, -1 for a retraction: a column that views and sinks see.
WEIGHT: Final = "_weight"


def numbered(
    rows: pa.Table, unit: Sequence[str], times: tuple[str, str] | None = None, gap: int = 0
) -> tuple[pa.Table, Booleans]:
    """Rows sorted by group with a group number, and a mask of each group's first row.

    A group is a key; with ``times`` it is a session of a key.

    Args:
        rows: In the order in which they are to be merged.
        unit: The columns that rows of one key have in common.
        times: The columns of the first and the last event of a row, for sessions.
        gap: A row that begins so long after every earlier one of its key begins a new session.
    """
    codes = key_codes(rows, unit)
    ordered = rows
    if unit or times:
        began = [Place(times[0], descending=False, nulls_first=False)] if times else []
        # The sort has to be stable: rows of one key are merged in the order given.
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
    """The running maximum of times within each group; groups are numbered from 1, in order."""
    known, ranks = np.unique(times, return_inverse=True)
    # Group-major codes: any row of a later group exceeds all earlier ones, so the maximum restarts.
    largest = np.maximum.accumulate(groups * len(known) + ranks)
    latest: Whole = known[largest - groups * len(known)]
    return latest


def last_of_each(rows: pa.Table, unit: Sequence[str]) -> pa.Table:
    """The last row of each key, of rows sorted by key."""
    begins = differs_from_previous(rows, unit)
    return rows.filter(pa.array(np.append(begins[1:], True)[: rows.num_rows]))


def once(values: Whole) -> Whole:
    """The distinct values, sorted."""
    ordered = np.sort(values)
    found: Whole = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def is_among(values: Whole, wanted: Whole) -> Booleans:
    """A mask of the values that are in ``wanted``, which is sorted."""
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
    """The changelog from one set of rows to another: rows that are the same in both are left out.

    Rows of ``before`` are retractions (weight -1), those of ``after`` insertions (weight 1).

    Args:
        before: Rows with distinct values of ``unit``.
        after: Likewise.
        unit: The key by which a row replaces another.
        compared: The columns that are compared to tell whether a row is unchanged.
        order: The columns by which the result is sorted.
    """
    both = pa.concat_tables(
        [
            before.append_column(WEIGHT, _full(before.num_rows, -1)),
            after.append_column(WEIGHT, _full(after.num_rows, 1)),
        ]
    )
    # Pair rows by numeric key codes, which is cheap; sort only the result by the keys themselves.
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

"""List aggregates, MIN_BY and MAX_BY over groups: vectorised, without a loop over rows.

Rows come in the order of their groups, each with the number of its group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.row_order import differs_from_previous

Numbers = npt.NDArray[np.int64]


def gathered(values: Any, groups: Numbers, count: int, *, distinct: bool) -> pa.ListArray:
    """A list for each group: its values in ascending order, without null; each once if distinct."""
    rows = pa.table({"group": pa.array(groups), "value": values})
    rows = rows.filter(pc.is_valid(rows.column("value")))
    rows = rows.sort_by([("group", "ascending"), ("value", "ascending")])
    if distinct:
        rows = rows.filter(pa.array(differs_from_previous(rows, ["group", "value"])))
    held = np.bincount(rows.column("group").to_numpy(), minlength=count)
    offsets = np.concatenate(([0], np.cumsum(held)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _one_array(rows.column("value")))


def gathered_lists(lists: Any, groups: Numbers, count: int, *, distinct: bool) -> pa.ListArray:
    """A list for each group, of the values of its lists."""
    array = _one_array(lists)
    inside = groups[pc.list_parent_indices(array).to_numpy()]
    return gathered(pc.list_flatten(array), inside, count, distinct=distinct)


def chosen(values: Any, by: Any, groups: Numbers, count: int, *, largest: bool) -> Any:
    """For each group the value in the row where ``by`` is smallest, or largest.

    Ties are broken by the smallest or largest value, so the order of rows does not matter.
    """
    rows = pa.table({"group": pa.array(groups), "by": by, "value": values})
    rows = rows.filter(pc.is_valid(rows.column("by")))
    rows = rows.sort_by([(name, "ascending") for name in ("group", "by", "value")])
    begins = differs_from_previous(rows, ["group"])
    picked = np.append(begins[1:], True)[: len(begins)] if largest else begins
    found = rows.filter(pa.array(picked))
    places = np.full(count, -1, np.int64)
    places[found.column("group").to_numpy()] = np.arange(found.num_rows)
    return found.column("value").take(pa.array(places, mask=places < 0))


def _one_array(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

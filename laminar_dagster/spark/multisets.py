"""Multisets: the values of a group with their counts, the state of aggregates under retractions.

A multiset is a list of structs: one or more values ``v0``, ``v1``, … and a count ``n``. Entries are
sorted by their values, distinct, and have no count of 0: so the same values give the same bytes,
however they were batched and in whatever order they came. A count may be below 0 for a while, when
a retraction arrives before the insertion it retracts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.row_order import (
    Booleans,
    differs_from_previous,
    from_ordered_bits,
    ordered_bits,
)

Numbers = npt.NDArray[np.int64]

COUNT: Final = "n"
_GROUP: Final = "_group"


def multiset_type(values: Sequence[pa.DataType]) -> pa.DataType:
    """The Arrow type of multisets with values of these types."""
    fields = [pa.field(value_name(place), each) for place, each in enumerate(values)]
    return pa.list_(pa.struct([*fields, pa.field(COUNT, pa.int64())]))


def value_name(place: int) -> str:
    """The name of the entry field that holds the value at a position."""
    return f"v{place}"


def counted(values: Sequence[Any], counts: Numbers, groups: Numbers, count: int) -> pa.ListArray:
    """A multiset for each group.

    Args:
        values: Columns of one length; each row is one entry.
        counts: The count of each entry; below 0 for retractions.
        groups: The number of the group of each row.
        count: The number of groups.
    """
    names = [value_name(place) for place in range(len(values))]
    columns = {name: _plain(each) for name, each in zip(names, values, strict=True)}
    rows = pa.table({_GROUP: pa.array(groups), **columns, COUNT: pa.array(counts, pa.int64())})
    rows = rows.sort_by([(name, "ascending") for name in (_GROUP, *names)])
    begins = differs_from_previous(rows, [_GROUP, *names])
    starts = np.flatnonzero(begins)
    ordered = rows.column(COUNT).to_numpy()
    sums = np.add.reduceat(ordered, starts) if len(starts) else ordered
    entries = rows.filter(pa.array(begins)).set_column(len(names) + 1, COUNT, pa.array(sums))
    entries = entries.filter(pa.array(sums != 0))
    return _lists(entries, count)


def merged(multisets: Any, groups: Numbers, count: int) -> pa.ListArray:
    """Merge the multisets of the rows of each group into one."""
    entries = Entries.of(multisets)
    return counted(entries.values, entries.counts, groups[entries.owners], count)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of many multisets in flat columns, in order.

    Attributes:
        owners: The index of the multiset that each entry is in.
        values: One column for each value of an entry.
        counts: The count of each entry.
    """

    owners: Numbers
    values: tuple[Any, ...]
    counts: Numbers

    @classmethod
    def of(cls, multisets: Any) -> Entries:
        """Flatten a column of multisets."""
        lists = one_array(multisets)
        inside = pc.list_flatten(lists)
        names = [each.name for each in inside.type if each.name != COUNT]
        return cls(
            pc.list_parent_indices(lists).to_numpy().astype(np.int64),
            tuple(pc.struct_field(inside, name) for name in names),
            pc.struct_field(inside, COUNT).to_numpy(),
        )

    def present(self, needed: Sequence[int]) -> Entries:
        """The entries with a count above 0 and no null in the needed values."""
        keep = self.counts > 0
        for place in needed:
            keep &= self.values[place].is_valid().to_numpy(zero_copy_only=False)
        return self.where(keep)

    def where(self, keep: Booleans) -> Entries:
        """The entries that a mask keeps."""
        mask = pa.array(keep)
        values = tuple(each.filter(mask) for each in self.values)
        return Entries(self.owners[keep], values, self.counts[keep])

    def take(self, places: Numbers) -> Entries:
        """The entries at these indices; an index may come several times."""
        values = tuple(each.take(pa.array(places)) for each in self.values)
        return Entries(self.owners[places], values, self.counts[places])

    def repeated(self) -> Entries:
        """Each entry as often as its count says."""
        return self.take(np.repeat(np.arange(len(self.counts)), self.counts))


def one_array(column: Any) -> Any:
    """A column as a single array instead of chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def offsets_of(groups: Numbers, count: int) -> pa.Array:
    """List offsets of the groups, for rows in the order of their groups."""
    held = np.bincount(groups, minlength=count)
    return pa.array(np.concatenate(([0], np.cumsum(held))), pa.int32())


def _lists(entries: pa.Table, count: int) -> pa.ListArray:
    offsets = offsets_of(entries.column(_GROUP).to_numpy(), count)
    names = [name for name in entries.column_names if name != _GROUP]
    structs = pa.StructArray.from_arrays(
        [one_array(entries.column(name)) for name in names], names=names
    )
    return pa.ListArray.from_arrays(offsets, structs)


def _plain(values: Any) -> Any:
    """Canonical floats: SQL has one zero and one NaN, which bytes can spell in several ways."""
    array = one_array(values)
    if not pa.types.is_floating(array.type):
        return array
    return from_ordered_bits(ordered_bits(pa.chunked_array([array])), array.type)

"""Values of groups, each with how often it is there: what is kept where a value may be taken back.

A multiset is a list of structs: one or more values ``v0``, ``v1``, … and a count ``n``. Entries are
sorted by their values, each stands once, and none counts 0: so the same values give the same bytes,
however they were cut and in whatever order they came. A count may be below 0 for a while, where
what is taken back arrives before what it takes back.
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
    """Of multisets of such values."""
    fields = [pa.field(value_name(place), each) for place, each in enumerate(values)]
    return pa.list_(pa.struct([*fields, pa.field(COUNT, pa.int64())]))


def value_name(place: int) -> str:
    """The field of an entry that holds a value."""
    return f"v{place}"


def counted(values: Sequence[Any], counts: Numbers, groups: Numbers, count: int) -> pa.ListArray:
    """A multiset for each group.

    Args:
        values: Columns of one length; what stands beside each other is one entry.
        counts: How often each is there; below 0 where it is taken back.
        groups: The number of the group of each row.
        count: So many groups.
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
    """One multiset for each group, of the multisets of its rows."""
    entries = Entries.of(multisets)
    return counted(entries.values, entries.counts, groups[entries.owners], count)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of many multisets beside each other, in order.

    Attributes:
        owners: Which multiset each is of.
        values: A column for each of its values.
        counts: How often each is there.
    """

    owners: Numbers
    values: tuple[Any, ...]
    counts: Numbers

    @classmethod
    def of(cls, multisets: Any) -> Entries:
        """The entries of a column of multisets."""
        lists = one_array(multisets)
        inside = pc.list_flatten(lists)
        names = [each.name for each in inside.type if each.name != COUNT]
        return cls(
            pc.list_parent_indices(lists).to_numpy().astype(np.int64),
            tuple(pc.struct_field(inside, name) for name in names),
            pc.struct_field(inside, COUNT).to_numpy(),
        )

    def present(self, needed: Sequence[int]) -> Entries:
        """Those that are there at least once, and whose needed values are not null."""
        keep = self.counts > 0
        for place in needed:
            keep &= self.values[place].is_valid().to_numpy(zero_copy_only=False)
        return self.where(keep)

    def where(self, keep: Booleans) -> Entries:
        """Some of them."""
        mask = pa.array(keep)
        values = tuple(each.filter(mask) for each in self.values)
        return Entries(self.owners[keep], values, self.counts[keep])

    def take(self, places: Numbers) -> Entries:
        """Some of them, in another order or several times."""
        values = tuple(each.take(pa.array(places)) for each in self.values)
        return Entries(self.owners[places], values, self.counts[places])

    def repeated(self) -> Entries:
        """Each as often as it is there."""
        return self.take(np.repeat(np.arange(len(self.counts)), self.counts))


def one_array(column: Any) -> Any:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def offsets_of(groups: Numbers, count: int) -> pa.Array:
    """Where the list of each group begins, of rows in the order of their groups; and the end."""
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
    """SQL knows one zero and one NaN; bytes know several."""
    array = one_array(values)
    if not pa.types.is_floating(array.type):
        return array
    return from_ordered_bits(ordered_bits(pa.chunked_array([array])), array.type)

"""Finalised values: output columns computed from multisets and sketches, which stay in the state.

A state may keep all values of a key when the output is only their minimum or count. Finalising in
the bucket keeps the values there, and emits no change while the result stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.moments import moments, paired_moments
from laminar_dagster.spark.multisets import Entries, offsets_of, one_array
from laminar_dagster.spark.row_order import Place, in_order
from laminar_dagster.spark.sketches import estimated, middles

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Answer:
    """An output column that is finalised from a column of the state.

    Attributes:
        name: Its name in the output.
        function: The function in ``ANSWERS`` that computes it.
        of: The column of the state.
        arrow_type: Its type in the output.
        shares: The percentiles wanted, between 0 and 1.
        is_list: Whether percentiles are returned as a list.
        separator: The separator of STRING_AGG.
        order: STRING_AGG's ORDER BY: for each value but the last (descending, nulls first).
        precision: The precision of a sketch, in bits.
        is_distinct: Whether STRING_AGG takes each string once.
    """

    name: str
    function: str
    of: str
    arrow_type: pa.DataType
    shares: tuple[float, ...] = ()
    is_list: bool = False
    separator: str = ""
    order: tuple[tuple[bool, bool], ...] = ()
    precision: int = 0
    is_distinct: bool = False


def answered(rows: pa.Table, answers: Sequence[Answer], opaque: Sequence[str]) -> pa.Table:
    """Add finalised values to state rows, and drop the columns that stay in the state.

    Args:
        rows: Rows of the state.
        answers: The values to compute.
        opaque: The columns to drop.
    """
    for each in answers:
        found = ANSWERS[each.function](each, rows.column(each.of))
        rows = rows.append_column(each.name, found.cast(each.arrow_type))
    return rows.drop_columns(list(opaque)) if opaque else rows


def _first(_: Answer, multisets: Any) -> Any:
    """The smallest value."""
    entries = Entries.of(multisets).present([0])
    return _picked(entries, _begins(entries), len(multisets))


def _last(_: Answer, multisets: Any) -> Any:
    """The largest value."""
    entries = Entries.of(multisets).present([0])
    return _picked(entries, _ends(entries), len(multisets))


def _first_beside(_: Answer, multisets: Any) -> Any:
    """MIN_BY: the value in the entry with the smallest key."""
    entries = Entries.of(multisets).present([0])
    return _picked(entries, _begins(entries), len(multisets), -1)


def _last_beside(_: Answer, multisets: Any) -> Any:
    """MAX_BY: the value in the entry with the largest key."""
    entries = Entries.of(multisets).present([0])
    return _picked(entries, _ends(entries), len(multisets), -1)


def _values(_: Answer, multisets: Any) -> Any:
    """All values, repeated by their counts, as a list."""
    return _listed(Entries.of(multisets).present([0]).repeated(), len(multisets))


def _distinct(_: Answer, multisets: Any) -> Any:
    """The distinct values as a list."""
    return _listed(Entries.of(multisets).present([0]), len(multisets))


def _number(_: Answer, multisets: Any) -> Any:
    """COUNT(DISTINCT …): the number of distinct entries without a null."""
    every = Entries.of(multisets)
    entries = every.present(range(len(every.values)))
    return pa.array(np.bincount(entries.owners, minlength=len(multisets)))


def _sum(answer: Answer, multisets: Any) -> Any:
    """The sum of the distinct values; null if there are none."""
    entries = Entries.of(multisets).present([0])
    kind = answer.arrow_type
    wide = pa.decimal128(38, 0) if kind == pa.int64() else kind
    rows = pa.table({"owner": entries.owners, "value": entries.values[0].cast(wide)})
    found = rows.group_by("owner", use_threads=False).aggregate([("value", "sum")])
    return _placed(found.column("value_sum"), found.column("owner").to_numpy(), len(multisets))


def _mode(_: Answer, multisets: Any) -> Any:
    """The most frequent value; the smallest of several."""
    entries = Entries.of(multisets).present([0])
    places = np.arange(len(entries.counts))
    ordered = entries.take(np.lexsort((places, -entries.counts, entries.owners)))
    return _picked(ordered, _begins(ordered), len(multisets))


def _bits(function: Any) -> Callable[[Answer, Any], Any]:
    def found(answer: Answer, multisets: Any) -> Any:
        entries = Entries.of(multisets).present([0])
        plain = entries.values[0].cast(pa.int64()).to_numpy()
        if function is np.bitwise_xor:
            # x XOR x = 0: a value with an even count cancels itself.
            plain = np.where(entries.counts % 2 == 1, plain, 0)
        return together(function, plain, entries.owners, len(multisets)).cast(answer.arrow_type)

    return found


def together(function: Any, values: Numbers, groups: Numbers, count: int) -> Any:
    """Reduce the numbers of each group with a numpy function; null for groups without any.

    Rows are in the order of their groups.
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    found = function.reduceat(values, starts) if len(starts) else values
    return _placed(pa.array(found, pa.int64()), groups[starts], count)


def _moments(answer: Answer, multisets: Any) -> Any:
    entries = Entries.of(multisets).present([0])
    given = (entries.values[0], entries.counts, entries.owners, len(multisets))
    return moments(*given, kind=answer.arrow_type)


def _paired_moments(_: Answer, multisets: Any) -> Any:
    entries = Entries.of(multisets).present([0, 1])
    return paired_moments(entries.values, entries.counts, entries.owners, len(multisets))


def _joined(answer: Answer, multisets: Any) -> Any:
    """STRING_AGG: the strings in order, joined with the separator; null if there are none.

    The last value of an entry is the string, the values before it are its sort key.
    """
    every = Entries.of(multisets)
    entries = every.present([len(every.values) - 1])
    if answer.order:
        entries = _ordered(entries, answer.order)
    if not answer.is_distinct:
        entries = entries.repeated()
    texts = entries.values[-1].cast(pa.string())
    lists = pa.ListArray.from_arrays(offsets_of(entries.owners, len(multisets)), texts)
    joined = pc.binary_join(lists, answer.separator)
    return pc.if_else(pc.greater(pc.list_value_length(lists), 0), joined, None)


def _ordered(entries: Entries, order: Sequence[tuple[bool, bool]]) -> Entries:
    names = [f"v{place}" for place in range(len(entries.values))]
    rows = pa.table(dict(zip(names, entries.values, strict=True)))
    places = [Place(name, *each) for name, each in zip(names, order, strict=False)]
    return entries.take(in_order(rows, [entries.owners], places, ()))


# --- percentiles --------------------------------------------------------------------------------


def _percentile(answer: Answer, multisets: Any) -> Any:
    """PERCENTILE_CONT: interpolate linearly between the two values around each share."""
    ranks = _Ranks.of(Entries.of(multisets).present([0]), len(multisets))
    numbers = pc.cast(ranks.values, pa.float64()).to_numpy()
    found = []
    for share in answer.shares:
        with np.errstate(invalid="ignore"):
            wanted = (ranks.totals - 1) * share
            below = np.floor(wanted)
            low, high = (numbers[ranks.entry(each)] for each in (below, np.ceil(wanted)))
            part = wanted - below
            between = np.where(part == 0, low, low * (1 - part) + high * part)
        found.append(pa.array(between, pa.float64(), from_pandas=False))
    return ranks.told(found, answer)


def _percentile_value(answer: Answer, multisets: Any) -> Any:
    """PERCENTILE_DISC: the first value whose cumulative share reaches each share."""
    ranks = _Ranks.of(Entries.of(multisets).present([0]), len(multisets))
    found = [ranks.values.take(pa.array(ranks.at_share(share))) for share in answer.shares]
    return ranks.told(found, answer)


def _percentile_bucket(answer: Answer, multisets: Any) -> Any:
    """As ``_percentile_value``, from the buckets of a sketch."""
    ranks = _Ranks.of(Entries.of(multisets).present([0]), len(multisets))
    found = [
        middles(ranks.values.take(pa.array(ranks.at_share(share))), answer.precision)
        for share in answer.shares
    ]
    return ranks.told(found, answer)


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Cumulative counts of the entries of many multisets, to find values by rank.

    Attributes:
        owners: The indices of the multisets that have values.
        totals: The number of values of each of these.
        upto: For each entry the number of values up to it, over all multisets before it too.
        count: The number of multisets, with values or without.
    """

    owners: Numbers
    totals: Numbers
    upto: Numbers
    values: Any
    count: int

    @classmethod
    def of(cls, entries: Entries, count: int) -> _Ranks:
        owners, starts = np.unique(entries.owners, return_index=True)
        totals = np.add.reduceat(entries.counts, starts) if len(starts) else entries.counts
        return cls(owners, totals, np.cumsum(entries.counts), entries.values[0], count)

    def entry(self, ranks: Any) -> Numbers:
        """The entry of the value at a rank (from 0) in each multiset."""
        before = np.cumsum(self.totals) - self.totals
        found: Numbers = np.searchsorted(self.upto, before + ranks.astype(np.int64), "right")
        return found

    def at_share(self, share: float) -> Numbers:
        """The first entry in each multiset at which a share of its values is reached."""
        return self.entry(np.maximum(np.ceil(self.totals * share), 1) - 1)

    def told(self, found: Sequence[Any], answer: Answer) -> Any:
        """One value, or a list of values, for each multiset; null for those without values."""
        if not answer.is_list:
            return _placed(found[0], self.owners, self.count)
        side_by_side = np.arange(len(self.owners) * len(found)).reshape(len(found), -1).T.ravel()
        inside = pa.concat_arrays(found).take(pa.array(side_by_side))
        offsets = pa.array(np.arange(len(self.owners) + 1) * len(found), pa.int32())
        return _placed(pa.ListArray.from_arrays(offsets, inside), self.owners, self.count)


def _estimate(answer: Answer, lists: Any) -> Any:
    return pa.array(estimated(lists, answer.precision))


# --- entries to columns -------------------------------------------------------------------------


def _begins(entries: Entries) -> Numbers:
    """The index of the first entry of each multiset that has any."""
    return np.flatnonzero(np.diff(entries.owners, prepend=-1))


def _ends(entries: Entries) -> Numbers:
    return np.flatnonzero(np.diff(entries.owners, append=-1))


def _picked(entries: Entries, places: Numbers, count: int, column: int = 0) -> Any:
    found = entries.values[column].take(pa.array(places))
    return _placed(found, entries.owners[places], count)


def _placed(values: Any, owners: Numbers, count: int) -> Any:
    """A column with each value at its owner's index, and null elsewhere."""
    places = np.full(count, -1, np.int64)
    places[owners] = np.arange(len(owners))
    return one_array(values).take(pa.array(places, mask=places < 0))


def _listed(entries: Entries, count: int) -> pa.ListArray:
    return pa.ListArray.from_arrays(offsets_of(entries.owners, count), entries.values[0])


ANSWERS: Final[Mapping[str, Callable[[Answer, Any], Any]]] = {
    "min": _first,
    "max": _last,
    "min_by": _first_beside,
    "max_by": _last_beside,
    "values": _values,
    "distinct": _distinct,
    "count_distinct": _number,
    "sum_distinct": _sum,
    "mode": _mode,
    "bit_and": _bits(np.bitwise_and),
    "bit_or": _bits(np.bitwise_or),
    "bit_xor": _bits(np.bitwise_xor),
    "moments": _moments,
    "paired_moments": _paired_moments,
    "string_agg": _joined,
    "percentile": _percentile,
    "percentile_disc": _percentile_value,
    "approx_percentile": _percentile_bucket,
    "approx_count_distinct": _estimate,
}

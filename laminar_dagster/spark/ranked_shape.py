"""The state of ROW_NUMBER: the first rows of each key, in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.columns import END, FIRST, HASH, LAST, TIME
from laminar_dagster.spark.growth import METADATA
from laminar_dagster.spark.keyed_rows import NUMBER, WEIGHT, changed_rows, numbered
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.row_order import (
    Booleans,
    Place,
    Whole,
    differs_from_previous,
    in_order,
    key_codes,
)
from laminar_dagster.spark.state_shape import stored_columns
from laminar_dagster.spark.weighing import check_weights

RANK: Final = "_rank"
# Ranking early pays if it drops enough rows: how many rows to sample, and the largest share of rows
# that may be left.
_LOOKED_AT: Final = 4096
_WORTH_RANKING: Final = 0.75


@dataclass(frozen=True, slots=True)
class RankedShape(KeyedShape):
    """The row layout of a ranking's state. ``columns`` are those of the order and the output.

    Attributes:
        order: The columns that a key's rows are sorted by. Ties are broken by all columns, so
            arrival order does not matter.
        limit: The number of rows of each key that are emitted, and kept in the state. Under
            retractions all rows are kept, each once with its weight: any of them may move up.
    """

    order: tuple[Place, ...] = ()
    limit: int = 1

    def about(self) -> dict[str, Any]:
        """See ``KeyedShape.about``."""
        order = [[each.name, each.descending, each.nulls_first] for each in self.order]
        return {**KeyedShape.about(self), "limit": self.limit, "order": order}

    @property
    def output(self) -> pa.Schema:
        """See ``KeyedShape.output``."""
        fields = [each for each in self.schema if each.name != HASH]
        return pa.schema([*fields, pa.field(RANK, pa.int64())])

    @classmethod
    def of_file(cls, schema: pa.Schema) -> RankedShape:
        """Read the shape that a file was written with from its schema."""
        about = json.loads(schema.metadata[METADATA])
        return cls(
            OperatorId(about["operator"]),
            *stored_columns(about, schema),
            about["kind"],
            about["gap"],
            about["weight"],
            order=tuple(Place(*each) for each in about["order"]),
            limit=about["limit"],
        )

    def first_rows(self, records: pa.Table, columns: Sequence[PartialColumn]) -> pa.Table:
        """See ``KeyedShape.first_rows``; records have the columns of the state by their names."""
        if self.gap is not None:
            times = records.column(TIME)
            records = records.append_column(FIRST, times).append_column(LAST, times)
        if self.weight is not None:
            records = records.append_column(self.weight, records.column(WEIGHT).cast(pa.int64()))
        names = [name for name in self.schema.names if name not in (HASH, END)]
        rows = records.select(names)
        if self.gap is None and not self._leaves_out_many(rows):
            return rows.append_column(END, pa.nulls(rows.num_rows, pa.int64()))
        return self._best(rows)

    def _leaves_out_many(self, rows: pa.Table) -> bool:
        """Whether ranking these rows early, before the shuffle, drops enough of them to pay off.

        The number of keys is estimated from how often keys repeat among the first rows.
        """
        codes = key_codes(rows.slice(0, _LOOKED_AT), self.unit)
        repeated = len(codes) - len(np.unique(codes))
        keys = len(codes) ** 2 / (2 * max(repeated, 1))
        found = keys * -np.expm1(-rows.num_rows / max(keys, 1))
        return bool(self.limit * found < _WORTH_RANKING * rows.num_rows)

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """See ``KeyedShape.combine``."""
        names = [name for name in self.schema.names if name != END]
        rows = pa.concat_tables([part.select(names) for part in parts])
        return self._best(rows).select(self.schema.names)

    def _best(self, rows: pa.Table) -> pa.Table:
        """The first rows of each key or session, sorted, with the end of their session if any."""
        if self.gap is None:
            numbers = key_codes(rows, self.unit)
        else:
            rows, begins = numbered(rows, self.unit, (FIRST, LAST), self.gap)
            numbers = rows.column(NUMBER).to_numpy()
            rows = _with_spans(rows.drop_columns([NUMBER]), begins)
        places = in_order(rows, [numbers], self.order, self._told)
        numbers = numbers[places]
        if self.weight is not None:
            placed = rows.take(pa.array(places)).append_column(NUMBER, pa.array(numbers))
            kept = self._consolidated(placed, self.weight).drop_columns([NUMBER])
        else:
            is_first = _places(np.diff(numbers, prepend=-1) != 0) <= self.limit
            kept = rows.take(pa.array(places[is_first]))
        if self.gap is None:
            return kept.append_column(END, pa.nulls(kept.num_rows, pa.int64()))
        ends = pc.add(kept.column(LAST), pa.scalar(self.gap, pa.int64()))
        return kept.append_column(END, ends)

    @property
    def _told(self) -> list[str]:
        """The columns of the order and the output."""
        return [column.name for column in self.columns if column.name != self.weight]

    def weighed(
        self, records: pa.Table, columns: Sequence[PartialColumn]
    ) -> tuple[pa.Table, tuple[PartialColumn, ...]]:
        """See ``KeyedShape.weighed``; rows are kept as they are."""
        check_weights(records, self.operator)
        return records, tuple(columns)

    def _consolidated(self, rows: pa.Table, weight: str) -> pa.Table:
        """Each distinct row once with the sum of its weights, in order.

        Rows of weight 0 are dropped. Of a key or session that has no others, one stays as a
        tombstone: it hides rows in older files.
        """
        begins = differs_from_previous(rows, [NUMBER, *self._told])
        starts = np.flatnonzero(begins)
        if not len(starts):
            return rows
        sums = np.add.reduceat(rows.column(weight).to_numpy(), starts)
        once = rows.filter(pa.array(begins))
        once = once.set_column(once.column_names.index(weight), weight, pa.array(sums))
        units = np.cumsum(differs_from_previous(once, [NUMBER])) - 1
        is_empty = np.bincount(units, weights=sums != 0) == 0
        is_first = differs_from_previous(once, [NUMBER])
        return once.filter(pa.array((sums != 0) | (is_first & is_empty[units])))

    def shown(self, rows: pa.Table) -> pa.Table:
        """See ``KeyedShape.shown``; with the rank of each row."""
        if self.weight is not None:
            rows = _as_often(rows, rows.column(self.weight).to_numpy())
        if self.gap is not None and rows.num_rows:
            # Keep only the last session of each key.
            last = np.append(differs_from_previous(rows, self.unit)[1:], True)
            ends = np.flatnonzero(last)
            newest = rows.column(FIRST).to_numpy()[ends]
            counts = np.diff(np.concatenate(([0], ends + 1)))
            mine = rows.column(FIRST).to_numpy() == np.repeat(newest, counts)
            rows = rows.filter(pa.array(mine))
        places = _places(differs_from_previous(rows, self.unit))
        rows = rows.append_column(RANK, pa.array(places))
        return rows.filter(pa.array(places <= self.limit)) if self.weight is not None else rows

    @property
    def tells_all(self) -> bool:
        """See ``KeyedShape.tells_all``: the rows in the state are the rows that are emitted."""
        return self.weight is None and self.gap is None

    def changes(self, before: pa.Table, after: pa.Table) -> pa.Table:
        """See ``KeyedShape.changes``.

        All retractions of a key come before its insertions: so a sink that applies them in order
        keeps a row whose rank alone changes.
        """
        # In a file the rows of a key are adjacent, and in rank order.
        before, after = self.shown(before), self.shown(after)
        order = (*self.unit, WEIGHT, RANK)
        return changed_rows(before, after, (*self.unit, RANK), self._told, order)

    def listed(self, rows: pa.Table) -> pa.Table:
        """Stored rows as rows of the view, by key, with their ranks."""
        # Stored rows are sorted by hash; the rows of a key are adjacent, and in rank order.
        names = [(name, "ascending") for name in self.group]
        return self.shown(rows.sort_by(names) if names else rows)


def _with_spans(rows: pa.Table, begins: Booleans) -> pa.Table:
    """Set the times of the first and last event of the whole session in each of its rows."""
    starts = np.flatnonzero(begins)
    if not len(starts):
        return rows
    counts = np.diff(np.append(starts, rows.num_rows))
    first = np.minimum.reduceat(rows.column(FIRST).to_numpy(), starts)
    last = np.maximum.reduceat(rows.column(LAST).to_numpy(), starts)
    for name, values in ((FIRST, first), (LAST, last)):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.array(np.repeat(values, counts)))
    return rows


def _as_often(rows: pa.Table, counts: Whole) -> pa.Table:
    """Each row repeated by its count; rows with a count below 1 are dropped."""
    times = np.maximum(counts, 0)
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times)))


def _places(begins: Booleans) -> Whole:
    """The position of each row within its group of adjacent rows, from 1."""
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(begins)))
    places: Whole = np.arange(1, len(begins) + 1)
    return places - np.repeat(starts, counts)

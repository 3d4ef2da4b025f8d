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
# Rows that are looked at before they are ranked, and what share of them may be left for it to pay.
_LOOKED_AT: Final = 4096
_WORTH_RANKING: Final = 0.75


@dataclass(frozen=True, slots=True)
class RankedShape(KeyedShape):
    """What the rows of such a state look like. ``columns`` are those of the order and the output.

    Attributes:
        order: By what a key's rows are put in order. Where that leaves it open, all columns decide,
            so no order in which rows come matters.
        limit: So many rows of each key are rows of the view, and kept. Where rows are taken back
            all are kept, each once with its weight: any of them may move up.
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
        """The shape that a file was written with."""
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
        """Whether rows are worth ranking before they are brought together with others.

        How many keys there are is told by how often one comes twice among the first rows.
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
        """The first rows of each key or session, in order, with when its events were."""
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
        """Each row once with the sum of its weights, in their order.

        A row that was taken back stays if its key or session has no other: it hides older files.
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
        """See ``KeyedShape.shown``; with the place of each row."""
        if self.weight is not None:
            rows = _as_often(rows, rows.column(self.weight).to_numpy())
        if self.gap is not None and rows.num_rows:
            # Of the sessions of a key the last one.
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
        """See ``KeyedShape.tells_all``: what is kept is what is shown."""
        return self.weight is None and self.gap is None

    def changes(self, before: pa.Table, after: pa.Table) -> pa.Table:
        """See ``KeyedShape.changes``.

        All of a key that is taken back comes first: a row that only moves up is there in the end.
        """
        # Rows of a file that have a key in common stand together, and in their order.
        before, after = self.shown(before), self.shown(after)
        order = (*self.unit, WEIGHT, RANK)
        return changed_rows(before, after, (*self.unit, RANK), self._told, order)

    def listed(self, rows: pa.Table) -> pa.Table:
        """Stored rows as rows of the view, by key, with the place of each."""
        # They stand by hash; those of a key are together, and in their order.
        names = [(name, "ascending") for name in self.group]
        return self.shown(rows.sort_by(names) if names else rows)


def _with_spans(rows: pa.Table, begins: Booleans) -> pa.Table:
    """Rows of which each knows the first and the last event of its session."""
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
    """Each row as often as it is there."""
    times = np.maximum(counts, 0)
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times)))


def _places(begins: Booleans) -> Whole:
    """The place of each row among those that stand together, from 1."""
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(begins)))
    places: Whole = np.arange(1, len(begins) + 1)
    return places - np.repeat(starts, counts)

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
from laminar_dagster.spark.keyed_rows import NUMBER, WEIGHT, changed_rows, numbered
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.row_order import Booleans, differs_from_previous, ordered_bits
from laminar_dagster.spark.state_shape import METADATA, stored_columns

RANK: Final = "_rank"


@dataclass(frozen=True, slots=True)
class Place:
    """A column of the state by which rows are put in order."""

    name: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class RankedShape(KeyedShape):
    """What the rows of such a state look like. ``columns`` are those of the order and the output.

    Attributes:
        order: By what a key's rows are put in order. Where that leaves it open, all columns decide,
            so no order in which rows come matters.
        limit: So many rows of each key are kept.
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
            order=tuple(Place(*each) for each in about["order"]),
            limit=about["limit"],
        )

    def first_rows(self, records: pa.Table, columns: Sequence[PartialColumn]) -> pa.Table:
        """See ``KeyedShape.first_rows``; records have the columns of the state by their names."""
        if self.gap is not None:
            times = records.column(TIME)
            records = records.append_column(FIRST, times).append_column(LAST, times)
        names = [name for name in self.schema.names if name not in (HASH, END)]
        return self._best(records.select(names))

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """See ``KeyedShape.combine``."""
        names = [name for name in self.schema.names if name != END]
        rows = pa.concat_tables([part.select(names) for part in parts])
        return self._best(rows).select(self.schema.names)

    def _best(self, rows: pa.Table) -> pa.Table:
        """The first rows of each key or session, in order, with when its events were."""
        times = (FIRST, LAST) if self.gap is not None else None
        ordered, begins = numbered(rows, self.unit, times, self.gap or 0)
        if times:
            ordered = _with_spans(ordered, begins)
        placed = self._in_order(ordered)
        kept = placed.filter(pa.array(_places(placed, [NUMBER]) <= self.limit))
        kept = kept.drop_columns([NUMBER])
        if self.gap is None:
            return kept.append_column(END, pa.nulls(kept.num_rows, pa.int64()))
        ends = pc.add(kept.column(LAST), pa.scalar(self.gap, pa.int64()))
        return kept.append_column(END, ends)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Rows of each number in the order of the query, which null and NaN have a place in."""
        keys: list[tuple[str, str]] = [(NUMBER, "ascending")]
        helped = rows
        for number, each in enumerate(self.order):
            values = rows.column(each.name)
            is_null, plain = f"_null{number}", f"_plain{number}"
            helped = helped.append_column(is_null, pc.cast(values.is_null(), pa.int8()))
            # The order of SQL, in which NaN is the largest.
            plain_values = ordered_bits(values) if pa.types.is_floating(values.type) else values
            helped = helped.append_column(plain, plain_values)
            keys.append((is_null, "descending" if each.nulls_first else "ascending"))
            keys.append((plain, "descending" if each.descending else "ascending"))
        keys += [(column.name, "ascending") for column in self.columns]
        return helped.sort_by(keys).select(rows.column_names)

    def shown(self, rows: pa.Table) -> pa.Table:
        """See ``KeyedShape.shown``; with the place of each row."""
        if self.gap is not None and rows.num_rows:
            # Of the sessions of a key the last one.
            last = np.append(differs_from_previous(rows, self.unit)[1:], True)
            ends = np.flatnonzero(last)
            newest = rows.column(FIRST).to_numpy()[ends]
            counts = np.diff(np.concatenate(([0], ends + 1)))
            mine = rows.column(FIRST).to_numpy() == np.repeat(newest, counts)
            rows = rows.filter(pa.array(mine))
        places = _places(rows, self.unit)
        return rows.append_column(RANK, pa.array(places))

    def changes(self, before: pa.Table, after: pa.Table) -> pa.Table:
        """See ``KeyedShape.changes``.

        All of a key that is taken back comes first: a row that only moves up is there in the end.
        """
        compared = [column.name for column in self.columns]
        found = changed_rows(self.listed(before), self.shown(after), (*self.unit, RANK), compared)
        return found.sort_by([(name, "ascending") for name in (*self.unit, WEIGHT)])

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


def _places(rows: pa.Table, unit: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The place of each row among those that stand together, from 1."""
    starts = np.flatnonzero(differs_from_previous(rows, unit))
    counts = np.diff(np.append(starts, rows.num_rows))
    places: np.ndarray[tuple[int], np.dtype[np.int64]] = np.arange(1, rows.num_rows + 1)
    return places - np.repeat(starts, counts)

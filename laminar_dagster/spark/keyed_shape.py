"""The row layout of a keyed state, and how rows of one key are merged.

A key is looked up by its hash. All rows of a hash are written together, so the newest file that
holds a hash is complete for it: keys whose hashes collide are simply kept together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregates import PartialColumn, first_partials, merge_partials
from laminar_dagster.spark.answers import Answer, answered
from laminar_dagster.spark.arrow_files import schema_fingerprint
from laminar_dagster.spark.columns import END, FIRST, HASH, LAST, TIME
from laminar_dagster.spark.growth import (
    METADATA,
    Growth,
    began,
    beginning,
    grown,
    growth_of_file,
    growth_told,
)
from laminar_dagster.spark.keyed_rows import (
    NUMBER,
    WEIGHT,
    changed_rows,
    is_among,
    last_of_each,
    numbered,
    once,
)
from laminar_dagster.spark.row_order import Booleans, in_order
from laminar_dagster.spark.state_shape import (
    KeyColumn,
    cast_rows,
    opaque_names,
    partials_told,
    stored_columns,
)
from laminar_dagster.spark.weighing import weighed

Kind = Literal["group", "window", "session", "rank", "operator"]

_TIMES: Final = (
    PartialColumn(FIRST, TIME, "min", "min", pa.int64()),
    PartialColumn(LAST, TIME, "max", "max", pa.int64()),
)


@dataclass(frozen=True, slots=True)
class KeyedShape:
    """The row layout of a keyed state: hash, end, keys, times, partials.

    Attributes:
        kind: A *group* has one row for each key; a *window* one for each window and key; a
            *session* one for each stretch of a key's events without a gap.
        gap: How many microseconds after its last event a group is removed (its time to live), or a
            session ends; a later event begins a new one. None for groups that stay forever, and
            for windows, which have an end of their own.
        weight: The partial that sums the weights of a key's rows; None without retractions.
        growth: The partials added to the state after it began; None if there are none.
        answers: The output values finalised from multisets and sketches, which stay in the state.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    columns: tuple[PartialColumn, ...]
    kind: Kind = "group"
    gap: int | None = None
    weight: str | None = None
    growth: Growth | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that are equal in rows to merge; sessions are split further by time."""
        names = tuple(key.name for key in self.keys)
        return (END, *names) if self.kind == "window" else names

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (*self.unit, FIRST) if self.gap is not None else self.unit

    @property
    def times(self) -> tuple[PartialColumn, ...]:
        """The times of a row's first and last event; none without a ``gap``."""
        return _TIMES if self.gap is not None else ()

    @property
    def kept(self) -> tuple[PartialColumn, ...]:
        """All columns that are merged: times, partials, and ``_since`` if partials were added."""
        return (*self.times, *self.columns, *began(self.growth))

    @property
    def schema(self) -> pa.Schema:
        """The schema of a state file."""
        fields = [(HASH, pa.int64()), (END, pa.int64())]
        fields += [(key.name, key.arrow_type) for key in self.keys]
        fields += [(column.name, column.arrow_type) for column in self.kept]
        return pa.schema(fields, {METADATA: json.dumps(self.about(), ensure_ascii=False)})

    def about(self) -> dict[str, Any]:
        """The metadata of a state file."""
        return {
            "operator": self.operator,
            "kind": self.kind,
            "gap": self.gap,
            "weight": self.weight,
            "keys": {key.name: key.sql for key in self.keys},
            **partials_told(self.columns),
            **growth_told(self.growth),
        }

    @classmethod
    def of_file(cls, schema: pa.Schema) -> KeyedShape:
        """Read the shape that a file was written with from its schema."""
        about = json.loads(schema.metadata[METADATA])
        return cls(
            OperatorId(about["operator"]),
            *stored_columns(about, schema),
            about["kind"],
            about["gap"],
            about["weight"],
            growth_of_file(about),
        )

    @property
    def output(self) -> pa.Schema:
        """The schema of output rows, before Spark computes the final values."""
        hidden = {HASH, *opaque_names(self.columns)}
        kept = [each for each in self.schema if each.name not in hidden]
        told = [pa.field(each.name, each.arrow_type) for each in self.answers]
        return pa.schema([*kept, *told])

    @property
    def fingerprint(self) -> str:
        """A hash of the names and types of the columns."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Convert stored rows to this shape: adds, removes and widens columns after evolution.

        Raises:
            ValueError: The rows cannot be converted.
        """
        return cast_rows(grown(table, self.columns, self.growth), self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end among rows; None if no row has an end."""
        found = pc.min_max(rows.column(END)).as_py()
        return None if found["min"] is None else (found["min"], found["max"])

    # --- rows of one key --------------------------------------------------------------------------

    def weighed(
        self, records: pa.Table, columns: Sequence[PartialColumn]
    ) -> tuple[pa.Table, tuple[PartialColumn, ...]]:
        """Return records and partials in which each record counts by its ``_weight``.

        Raises:
            ComputeFailed: A weight is neither 1 nor -1, or the negation of a value does not fit.
        """
        return weighed(records, columns, self.operator)

    def first_rows(self, records: pa.Table, columns: Sequence[PartialColumn]) -> pa.Table:
        """Aggregate records to one row for each key, window or session, without a hash.

        Args:
            records: Rows with keys and arguments, and ``_time`` or ``_end`` if the kind needs it.
            columns: The partials to make of these records.
        """
        if self._is_grouped_by_arrow:
            made = first_partials(records, self.unit, columns, self.operator)
            return self._ended(self._begun(made))
        times = (TIME, TIME) if self.gap is not None else None
        ordered, begins = numbered(records, self.unit, times, self.gap or 0)
        made = first_partials(ordered, [NUMBER], (*self.times, *columns), self.operator)
        return self._finish(ordered, begins, self._begun(made))

    @property
    def _is_grouped_by_arrow(self) -> bool:
        """Whether Arrow can group rows by key. Not by floats: 0.0 and -0.0 are two keys to it."""
        floats = any(pa.types.is_floating(key.arrow_type) for key in self.keys)
        return bool(self.unit) and self.gap is None and not floats

    def _begun(self, made: pa.Table) -> pa.Table:
        for name, values in beginning(self.growth, made.num_rows).items():
            made = made.append_column(name, values)
        return made

    def combine(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge rows of several tables to one for each key, window or session, with their hash.

        Rows of a key are adjacent and sorted by time; keys are in no order.
        """
        names = self.schema.names
        rows = pa.concat_tables([part.select(names) for part in parts])
        times = (FIRST, LAST) if self.gap is not None else None
        ordered, begins = numbered(rows, self.unit, times, self.gap or 0)
        made = merge_partials(ordered, [NUMBER], self.kept, self.operator)
        return self._finish(ordered, begins, made).select(names)

    def _finish(self, ordered: pa.Table, begins: Booleans, made: pa.Table) -> pa.Table:
        kept = [name for name in (HASH, END) if name in ordered.column_names]
        kept += [key.name for key in self.keys]
        rows = ordered.filter(pa.array(begins)).select(kept)
        for column in self.kept:
            rows = rows.append_column(column.name, made.column(column.name))
        return self._ended(rows)

    def _ended(self, rows: pa.Table) -> pa.Table:
        """Rows with ``_end``: the last event plus ``gap``, or as it is, or null."""
        if self.gap is not None:
            ends = pc.add(rows.column(LAST), pa.scalar(self.gap, pa.int64()))
            rows = rows.drop_columns([END]) if END in rows.column_names else rows
            return rows.append_column(END, ends)
        if END not in rows.column_names:
            rows = rows.append_column(END, pa.nulls(rows.num_rows, pa.int64()))
        return rows

    def shown(self, rows: pa.Table) -> pa.Table:
        """The rows of the state that are output rows of the view, with finalised values.

        A group with a ``gap`` may have two rows, one that ends and one that has begun since: only
        the newest is output.
        """
        if self.weight is not None:
            rows = rows.filter(pc.greater(rows.column(self.weight), 0))
        if self.kind == "group" and self.gap is not None:
            rows = last_of_each(rows, self.unit)
        return answered(rows, self.answers, opaque_names(self.columns))

    @property
    def tells_all(self) -> bool:
        """Whether a key without ``changes`` has unchanged state, and need not be written again."""
        return False

    def changes(self, before: pa.Table, after: pa.Table) -> pa.Table:
        """The changelog of output rows: retractions and insertions, with ``_weight``."""
        unit = self.group if self.kind == "session" else self.unit
        compared = [column.name for column in self.columns if not column.is_opaque]
        compared += [each.name for each in self.answers]
        compared += [LAST] if self.kind == "session" else []
        return changed_rows(self.shown(before), self.shown(after), unit, compared, (*unit, WEIGHT))

    # --- rows of several files --------------------------------------------------------------------

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge the rows of a chain, oldest file first: the newest file with a hash wins."""
        found: list[pa.Table] = []
        known = np.empty(0, np.int64)
        for part in reversed(parts):
            rows = part.select(self.schema.names)
            hashes = rows.column(HASH).to_numpy()
            found.append(rows.filter(pa.array(~is_among(hashes, known))))
            known = once(np.concatenate([known, hashes]))
        return self.sorted(pa.concat_tables(found)) if found else self.schema.empty_table()

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of a file."""
        places = in_order(rows, [rows.column(HASH).to_numpy()], (), self.group)
        return rows.take(pa.array(places))

    def alive(self, rows: pa.Table) -> pa.Table:
        """Rows without tombstones: keys whose records were all retracted."""
        if self.weight is None or self.kind not in ("group", "rank") or self.gap is not None:
            return rows
        return rows.filter(pc.not_equal(rows.column(self.weight), 0))


def hash_of_unit(shape: KeyedShape, rows: pa.Table) -> pa.Table:
    """Rows of windows with a hash of key and window end; other rows as they are."""
    if shape.kind != "window":
        return rows
    mixed = rows.column(HASH).to_numpy().view(np.uint64)
    ends = rows.column(END).to_numpy().view(np.uint64)
    # Window ends are multiples of one size: mix their bits, or the hashes would collide.
    ends = (ends ^ (ends >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = mixed ^ ends ^ (ends >> np.uint64(27))
    place = rows.column_names.index(HASH)
    return rows.set_column(place, HASH, pa.array(mixed.view(np.int64)))

"""Decodes row events of the log into the declared columns and the metadata columns.

Events of one table are decoded together, in columns; then the rows are sorted by log order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from laminar_dagster.core.ports import ReadingCost
from laminar_dagster.sources.changes.columns import OP, POSITION, TABLE, TIMESTAMP, WEIGHT, declared
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.formats.binary.lanes import Blame, Int64s
from laminar_dagster.sources.mysql.events import DELETES, UPDATES
from laminar_dagster.sources.mysql.row_walk import Images, RowsEvent, walk
from laminar_dagster.sources.mysql.table_map import LoggedTable
from laminar_dagster.sources.mysql.values import Read, Unfit, column_of, reader_for

_OPS: Final = ("c", "u", "d")


class MissingColumn(Unfit):
    """A declared column that a table does not have."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row event with its table and the time it was written."""

    table: LoggedTable
    event: RowsEvent
    timestamp: int


@dataclass
class ChangeDecoder:
    """Decodes changes to tables that all have the declared columns.

    Attributes:
        schema: The declared columns, and those that ``change_traits`` adds.
    """

    schema: pa.Schema
    _readers: dict[LoggedTable, dict[str, tuple[int, Read]]] = field(default_factory=dict)

    def readers(self, table: LoggedTable) -> dict[str, tuple[int, Read]]:
        """The place of each declared column in a table, and its reader.

        Raises:
            MissingColumn: The table lacks a declared column.
            Unfit: A column's type cannot be read as the declared one.
        """
        known = self._readers.get(table)
        if known is None:
            known = self._readers[table] = _readers(table, declared(self.schema))
        return known

    def decode(
        self, file: str, changes: Sequence[Change], fetch_seconds: float = 0.0
    ) -> PlacedChunk:
        """Decode changes from one log file, in order.

        Raises:
            MissingColumn, Unfit: A table does not match its declaration.
            DamagedLog: The events are damaged.
        """
        began = time.perf_counter()
        groups: dict[LoggedTable, list[int]] = {}
        for place, each in enumerate(changes):
            groups.setdefault(each.table, []).append(place)
        parts = [self._part(file, table, changes, places) for table, places in groups.items()]
        order = np.argsort(np.concatenate([each.event for each in parts]), kind="stable")
        rows = pa.concat_batches([each.rows for each in parts])
        if len(parts) > 1:
            rows = rows.take(pa.array(order))
        rows = pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)
        ends = np.array([each.event.place for each in changes], np.int64)
        events = np.concatenate([each.event for each in parts])[order]
        bad = sorted((one for each in parts for one in each.bad), key=lambda one: one.position)
        return chunk_of(
            file,
            rows,
            pa.array(ends[events] if len(events) else events, pa.int64()),
            bad,
            sum(len(each.event.body) for each in changes),
            records=sum(each.records for each in parts),
            added=sum(each.added for each in parts),
            cost=ReadingCost(fetch_seconds, time.perf_counter() - began),
        )

    def _part(
        self, file: str, table: LoggedTable, changes: Sequence[Change], places: list[int]
    ) -> _Part:
        readers = self.readers(table)
        events = [changes[place].event for place in places]
        images = walk(events, table, sorted({at for at, _ in readers.values()}))
        blame = Blame()
        columns: dict[str, pa.Array] = {}
        for each in declared(self.schema):
            at, read = readers[each.name]
            column = column_of(read, images.body, blame, images.values[at])
            if not each.nullable and column.null_count:
                missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
                blame.add(missing, f"`{each.name}` must not be null")
            columns[each.name] = column
        is_update = np.array([each.kind in UPDATES for each in events])[images.event]
        # An update is one change with two rows.
        number = np.cumsum(~(is_update & images.is_after)) - 1
        bad, is_good = _set_aside(images, number, blame, events)
        event = np.array(places, np.int64)[images.event]
        columns |= self._added(file, table, changes, event, images, is_update)
        rows = pa.RecordBatch.from_arrays(
            [columns[each.name].cast(each.type) for each in self.schema], names=self.schema.names
        )
        records = int(number[-1]) + 1 if len(number) else 0
        if bad:
            rows, event, is_update = (
                rows.filter(pa.array(is_good)),
                event[is_good],
                is_update[is_good],
            )
        return _Part(rows, event, bad, records, int(is_update.sum()) // 2)

    def _added(
        self,
        file: str,
        table: LoggedTable,
        changes: Sequence[Change],
        event: Int64s,
        images: Images,
        is_update: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> dict[str, pa.Array]:
        """The metadata columns."""
        count = len(images)
        found = {WEIGHT: pa.array(np.where(images.is_after, 1, -1).astype(np.int8))}
        names = self.schema.names
        if TABLE in names:
            shown = f"{table.schema}.{table.name}"
            found[TABLE] = pa.repeat(pa.scalar(shown, pa.string()), count)
        if OP in names:
            is_delete = np.array([each.event.kind in DELETES for each in changes])[event]
            found[OP] = pa.array(_OPS).take(
                pa.array(np.where(is_update, 1, np.where(is_delete, 2, 0)))
            )
        if POSITION in names:
            shown_at = pa.array([f"{file}:{each.event.place}" for each in changes], pa.string())
            found[POSITION] = shown_at.take(pa.array(event))
        if TIMESTAMP in names:
            seconds = np.array([each.timestamp for each in changes], np.int64)[event]
            found[TIMESTAMP] = pa.array(seconds * 1_000_000).view(pa.timestamp("us", tz="UTC"))
        return found


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows that the events of one table were decoded into."""

    rows: pa.RecordBatch
    event: Int64s
    bad: list[BadRecord]
    records: int
    added: int


def _readers(table: LoggedTable, columns: Sequence[pa.Field]) -> dict[str, tuple[int, Read]]:
    found: dict[str, tuple[int, Read]] = {}
    for each in columns:
        at = table.column(each.name)
        what = f"column `{each.name}` of {table.schema}.{table.name}"
        if at is None:
            raise MissingColumn(f"{what} is declared, and the table does not have it")
        column = table.columns[at]
        if column.type is None:
            raise Unfit(f"{what} is {column.problem or 'of a type'}, which cannot be read")
        found[each.name] = (at, reader_for(what, each.type, column.type))
    return found


def _set_aside(
    images: Images, number: Int64s, blame: Blame, events: Sequence[RowsEvent]
) -> tuple[list[BadRecord], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The changes that cannot be decoded, and which rows belong to good changes."""
    is_good = np.ones(len(images), np.bool_)
    reasons: dict[int, str] = {}
    for image in sorted(blame.reasons):
        reasons.setdefault(int(number[image]), blame.reasons[image])
    bad: list[BadRecord] = []
    for change, reason in reasons.items():
        first, last = np.searchsorted(number, [change, change + 1])
        is_good[first:last] = False
        raw = images.body.raw[images.starts[first] : images.ends[last - 1]].tobytes()
        bad.append(BadRecord(events[int(images.event[first])].place, raw, reason))
    return bad, is_good

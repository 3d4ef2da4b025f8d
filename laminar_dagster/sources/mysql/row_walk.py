"""Locates the values of rows in events that hold many rows, one behind the other.

Only a row's own values tell where it ends. So the events are walked in parallel: the first row of
every event, then the second of those that have one, and so on. Within a row, adjacent columns of
fixed size are passed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laminar_dagster.sources.formats.binary.lanes import PADDING, Body, Int64s, Mask
from laminar_dagster.sources.mysql.events import UPDATES, WRITES, DamagedLog, Kind
from laminar_dagster.sources.mysql.table_map import LoggedTable

# Newer kinds have extra data behind the table's id and the flags.
_OLD_KINDS: Final = frozenset({Kind.WRITE_V1, Kind.UPDATE_V1, Kind.DELETE_V1})
_NOT_WHOLE: Final = (
    "{}: changes to {}.{} come without whole rows; SET GLOBAL binlog_row_image = 'FULL', which"
    " holds for what is written after it"
)


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """Changes to rows of one table, all inserted, updated or deleted.

    Attributes:
        place: Where the event ends in its file.
        shown: The event's position, for errors.
    """

    kind: int
    body: bytes
    place: int
    shown: str


@dataclass(frozen=True, slots=True)
class Images:
    """Rows before or after a change, in the order of the log.

    Attributes:
        body: The bytes of all events.
        starts: Where each row begins.
        ends: Where each row ends.
        event: The event of each row.
        is_after: Whether it is the row after the change, instead of before.
        values: For each wanted column: where its values begin, how long they are, and whether they
            are null.
    """

    body: Body
    starts: Int64s
    ends: Int64s
    event: Int64s
    is_after: Mask
    values: dict[int, tuple[Int64s, Int64s, Mask]]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.starts)


def rows_begin(event: RowsEvent, table: LoggedTable) -> int:
    """Where the first row of an event begins in its body.

    Raises:
        DamagedLog: The event has another number of columns, or does not hold whole rows.
    """
    body, at = event.body, 8
    if event.kind not in _OLD_KINDS:
        at += int.from_bytes(body[at : at + 2], "little")
    count = body[at]
    at += 1
    if count >= 0xFB:
        size = {0xFC: 2, 0xFD: 3}.get(count, 8)
        count = int.from_bytes(body[at : at + size], "little")
        at += size
    if count != len(table.columns):
        raise DamagedLog(f"{event.shown}: changes of {count} columns to {table.name}")
    bytes_of_flags = (count + 7) // 8
    everything = (1 << count) - 1
    for _ in range(2 if event.kind in UPDATES else 1):
        flags = int.from_bytes(body[at : at + bytes_of_flags], "little")
        if flags & everything != everything:
            raise DamagedLog(_NOT_WHOLE.format(event.shown, table.schema, table.name))
        at += bytes_of_flags
    return at


def walk(events: Sequence[RowsEvent], table: LoggedTable, wanted: Sequence[int]) -> Images:
    """Find the rows of some events, and in them the values of some columns.

    Args:
        events: In the order of the log.
        table: The table of all events.
        wanted: The places of the columns, ascending.

    Raises:
        DamagedLog: The events are damaged.
    """
    bodies = [each.body for each in events]
    body = Body(b"".join(bodies))
    lengths = np.array([len(each) for each in bodies], np.int64)
    ends = np.cumsum(lengths) + PADDING
    begins = np.array([rows_begin(each, table) for each in events], np.int64)
    lanes = _Walk(body, table, wanted, ends - lengths + begins, ends)
    while lanes.step():
        pass
    images = lanes.collected()
    kinds = np.array([each.kind for each in events])
    is_update = np.isin(kinds, list(UPDATES))[images.event]
    # In an update, the rows before and after alternate.
    first = np.searchsorted(images.event, np.arange(len(events)))
    ordinal = np.arange(len(images)) - first[images.event]
    after = np.where(is_update, ordinal % 2 == 1, np.isin(kinds, list(WRITES))[images.event])
    images.is_after[:] = after
    return images


def count_changes(events: Sequence[RowsEvent], table: LoggedTable) -> Int64s:
    """How many rows each event changes.

    Raises:
        DamagedLog: The events are damaged.
    """
    images = walk(events, table, ())
    found = np.bincount(images.event, minlength=len(events)).astype(np.int64)
    is_update = np.array([each.kind in UPDATES for each in events])
    return np.where(is_update, found // 2, found)


class _Walk:
    """One cursor for each event, all of them moved together."""

    def __init__(
        self, body: Body, table: LoggedTable, wanted: Sequence[int], at: Int64s, ends: Int64s
    ) -> None:
        self._body = body
        self._table = table
        self._null_bytes = (len(table.columns) + 7) // 8
        self._stretches = _stretches(table)
        self._wanted = frozenset(wanted)
        self._event = np.flatnonzero(at < ends)
        self._at, self._end = at[self._event], ends[self._event]
        self._rounds: list[tuple[Int64s, Int64s, Int64s]] = []
        self._found: dict[int, list[tuple[Int64s, Int64s, Mask]]] = {each: [] for each in wanted}

    def step(self) -> bool:
        """Pass one row of every event; false when there is none left."""
        if not len(self._event):
            return False
        raw, words = self._body.raw, self._body.words
        starts = self._at
        flags = raw[np.minimum(starts, len(words) - 1)[:, None] + np.arange(self._null_bytes)]
        nulls = np.unpackbits(flags, axis=1, bitorder="little").astype(np.bool_)
        at = starts + self._null_bytes
        for stretch in self._stretches:
            at = self._pass(stretch, at, nulls)
        if (at > self._end).any():
            wrong = f"{self._table.schema}.{self._table.name}"
            raise DamagedLog(f"a row of {wrong} is longer than the event that holds it")
        if (at <= starts).any():
            # No row is empty. Without this check the cursors would never reach the end.
            wrong = f"{self._table.schema}.{self._table.name}"
            raise DamagedLog(f"a row of {wrong} has no bytes")
        self._rounds.append((self._event, starts, at))
        left = at < self._end
        if left.all():
            self._at = at
        else:
            self._event, self._at, self._end = self._event[left], at[left], self._end[left]
        return True

    def _pass(self, stretch: _Stretch, at: Int64s, nulls: Mask) -> Int64s:
        first, last = stretch.first, stretch.last
        if stretch.sizes is not None:
            sizes = np.where(nulls[:, first:last], 0, stretch.sizes)
            behind = at[:, None] + np.cumsum(sizes, axis=1)
            for column in range(first, last):
                if column in self._wanted:
                    size = sizes[:, column - first]
                    start = behind[:, column - first] - size
                    self._found[column].append((start, size, nulls[:, column]))
            return np.ascontiguousarray(behind[:, -1])
        null = nulls[:, first]
        # Clamped: a cursor led astray by damage must not read outside; the row's end reveals it.
        words = self._body.words
        word = words[np.minimum(at, len(words) - 1)].view(np.int64)
        length = np.where(null, 0, word & stretch.mask)
        start = at + np.where(null, 0, stretch.prefix)
        if first in self._wanted:
            self._found[first].append((start, length, null))
        return start + length

    def collected(self) -> Images:
        """All rows, sorted by event."""
        none = np.empty(0, np.int64)
        rounds = self._rounds or [(none, none, none)]
        event, starts, ends = (np.concatenate(each) for each in zip(*rounds, strict=True))
        order = np.argsort(event, kind="stable")
        values = {}
        for column, parts in self._found.items():
            found = parts or [(none, none, none.astype(np.bool_))]
            start, length, null = (np.concatenate(each) for each in zip(*found, strict=True))
            values[column] = (start[order], length[order], null[order])
        blank = np.zeros(len(order), np.bool_)
        return Images(self._body, starts[order], ends[order], event[order], blank, values)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Adjacent columns of fixed size, or one column of variable size."""

    first: int
    last: int
    sizes: Int64s | None = None
    prefix: int = 0
    mask: int = 0


def _stretches(table: LoggedTable) -> list[_Stretch]:
    found: list[_Stretch] = []
    columns, at = table.columns, 0
    while at < len(columns):
        if columns[at].prefix:
            prefix = columns[at].prefix
            found.append(_Stretch(at, at + 1, None, prefix, (1 << 8 * prefix) - 1))
            at += 1
            continue
        last = at
        while last < len(columns) and not columns[last].prefix:
            last += 1
        sizes = np.array([each.size for each in columns[at:last]], np.int64)
        found.append(_Stretch(at, last, sizes))
        at = last
    return found

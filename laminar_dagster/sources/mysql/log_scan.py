"""Scans the log ahead: how far an epoch may read, in whole transactions.

Changes that no reader could turn into rows are found here, before anything is planned: a table
that was truncated, dropped, or changed so that its earlier rows could not be retracted with the
values they were emitted with. An epoch ends before such a transaction; the next one raises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from laminar_dagster.clients.mysql.binlog import LAST_PLACE
from laminar_dagster.core.errors import DecodeFailed, LaminarError, TableChanged
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import LogMark
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.changes.columns import declared
from laminar_dagster.sources.changes.options import OnTruncate
from laminar_dagster.sources.mysql.change_rows import ChangeDecoder
from laminar_dagster.sources.mysql.column_types import MysqlType
from laminar_dagster.sources.mysql.events import (
    BROKEN,
    ROWS,
    UNREADABLE,
    DamagedLog,
    Event,
    Kind,
    why_broken,
)
from laminar_dagster.sources.mysql.frames import Frame, statement_of
from laminar_dagster.sources.mysql.gtids import GtidSet, mariadb_gtid, mysql_gtid, mysql_tagged_gtid
from laminar_dagster.sources.mysql.logged_tables import LoggedTables
from laminar_dagster.sources.mysql.row_walk import RowsEvent, count_changes, rows_begin
from laminar_dagster.sources.mysql.statements import Effect, Statement, effect_of, savepoint_in
from laminar_dagster.sources.mysql.table_map import LoggedTable, UnreadableTable
from laminar_dagster.sources.mysql.values import Unfit

# The types of the declared columns as text, by table.
Shapes = Mapping[str, Mapping[str, str]]

# Events within a transaction, which never begin or end one.
_WITHIN: Final = frozenset({Kind.TABLE_MAP, *ROWS})
# Transactions are taken, and their rows counted, in batches of this many bytes or transactions.
_COUNT_BYTES: Final = 1024 * 1024
_COUNT_TRANSACTIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Scanned:
    """How far an epoch may read.

    Attributes:
        file: The file in which it ends.
        position: The byte in it.
        mark: The mark of the last event before the end; None where nothing was taken.
        shapes: The tables' column types at the end.
        changes: How many events with changes to the tables were taken.
        bytes: How many bytes of the log were taken.
    """

    file: str
    position: int
    mark: LogMark | None
    shapes: dict[str, dict[str, str]]
    changes: int
    bytes: int


@dataclass
class _Transaction:
    """The events between two places at which an epoch may end.

    Attributes:
        changes: How many events with changes to the tables it has.
        rows: How many rows they change, as far as they were counted.
        row_bytes: The bytes of these events.
        savepoints: How many changes precede each savepoint.
    """

    changes: int = 0
    rows: int = 0
    row_bytes: int = 0
    shapes: dict[str, dict[str, str]] = field(default_factory=dict)
    savepoints: dict[str, int] = field(default_factory=dict)
    gtids: list[str] = field(default_factory=list)
    problem: LaminarError | None = None
    bytes: int = 0
    file: str = ""
    position: int = 0
    mark: LogMark | None = None

    def with_next(self, other: _Transaction) -> _Transaction:
        """Both joined into one; their rows must have been counted."""
        return _Transaction(
            changes=self.changes + other.changes,
            rows=self.rows + other.rows,
            row_bytes=self.row_bytes + other.row_bytes,
            shapes={**self.shapes, **other.shapes},
            gtids=self.gtids + other.gtids,
            problem=self.problem or other.problem,
            bytes=self.bytes + other.bytes,
        )


class LogScanner:
    """Takes transactions, one after the other, until a limit is reached."""

    def __init__(
        self,
        source_id: SourceId,
        tables: LoggedTables,
        decoder: ChangeDecoder,
        *,
        on_truncate: OnTruncate,
    ) -> None:
        """Scan for changes to some tables."""
        self._source_id = source_id
        self._tables = tables
        self._decoder = decoder
        self._on_truncate = on_truncate
        self._shapes: dict[LoggedTable, dict[str, str]] = {}

    def scan(
        self,
        events: Iterable[Event],
        start: tuple[str, int],
        shapes: Shapes,
        limits: Admission,
        most_bytes: int,
        gtids: GtidSet | None,
    ) -> Scanned:
        """Find the end of an epoch.

        Args:
            events: From ``start`` on.
            start: A file, and a byte in it.
            shapes: The tables' column types at the start.
            limits: The epoch's limits; one transaction is taken in any case.
            most_bytes: How much of the log to scan at most; the last transaction may exceed it.
            gtids: The GTIDs at the start; those of taken transactions are added.

        Raises:
            TableChanged, DecodeFailed: The first transaction with changes cannot be read.
        """
        taken = _Taken(start, {name: dict(each) for name, each in shapes.items()}, limits, gtids)
        # The column types as scanned, which may be further than what is taken.
        seen = {name: dict(each) for name, each in shapes.items()}
        counter = _RowCounter() if limits.max_records is not None else None
        waiting: list[_Transaction] = []
        size = scanned = 0
        reached = start
        try:
            for each in self._transactions(events, seen, counter):
                reached = each.file, each.position
                waiting.append(each)
                size, scanned = size + each.row_bytes, scanned + each.bytes
                # Take in batches, to stop before much more is scanned than the limits allow.
                is_enough = size >= _COUNT_BYTES or len(waiting) >= _COUNT_TRANSACTIONS
                if is_enough or scanned >= most_bytes or each.problem is not None:
                    if not taken.take(waiting, counter) or scanned >= most_bytes:
                        return taken.scanned()
                    waiting, size = [], 0
            taken.take(waiting, counter)
        except LaminarError:
            raise
        except BROKEN as error:
            place = f"{reached[0]}:{reached[1]}, or behind it"
            raise DecodeFailed(self._source_id, place, why_broken(error)) from error
        return taken.scanned()

    def _transactions(
        self,
        events: Iterable[Event],
        shapes: dict[str, dict[str, str]],
        counter: _RowCounter | None,
    ) -> Iterator[_Transaction]:
        current, frame = _Transaction(), Frame()
        # Complete, but ending beyond what a request can address: the epoch ends with the file.
        beyond: _Transaction | None = None
        for event in events:
            current.bytes += event.end - event.start
            if event.kind == Kind.FORMAT:
                # A crashed server may have left a transaction without an end: drop it.
                self._tables.forget()
                current, beyond = beyond or _Transaction(), None
                current.bytes += event.end - event.start
            try:
                effect = self._look_at(event, current, shapes, counter)
                is_end = event.kind not in _WITHIN and frame.is_end(event, effect)
            except LaminarError:
                raise
            except BROKEN as error:
                place = f"{event.file}:{event.start}"
                raise DecodeFailed(self._source_id, place, why_broken(error)) from error
            if not is_end:
                continue
            if event.end > LAST_PLACE:
                if counter is not None:
                    counter.settle()
                beyond = current if beyond is None else beyond.with_next(current)
            else:
                yield _ended(current, event)
            current = _Transaction()

    def _look_at(
        self,
        event: Event,
        current: _Transaction,
        shapes: dict[str, dict[str, str]],
        counter: _RowCounter | None,
    ) -> Effect | None:
        """Handle an event; return the effect of its statement, if it has one."""
        kind = event.kind
        if kind == Kind.TABLE_MAP:
            self._describe(event, current, shapes)
            return None
        if kind in ROWS:
            table = self._tables.of_rows(event)
            if table is not None:
                self._look_at_rows(event, table, current, counter)
            return None
        statement = statement_of(event)
        effect = self._effect(event, statement, current) if statement is not None else None
        if kind == Kind.MARIADB_GTID:
            current.gtids.append(mariadb_gtid(event.body, event.server_id))
        elif kind == Kind.GTID:
            current.gtids.append(mysql_gtid(event.body))
        elif kind == Kind.TAGGED_GTID:
            current.gtids.append(mysql_tagged_gtid(event.body))
        elif kind == Kind.XA_PREPARE:
            # XA committed in one phase is like any other transaction.
            if current.changes and not event.body[0]:
                self._refuse(event, current, "a prepared transaction (XA), which may be undone")
        elif kind in UNREADABLE:
            self._refuse(event, current, f"the log holds {UNREADABLE[Kind(kind)]}")
        return effect

    def _look_at_rows(
        self,
        event: Event,
        table: LoggedTable,
        current: _Transaction,
        counter: _RowCounter | None,
    ) -> None:
        """Check now that rows are complete: once a plan is written, it cannot be changed."""
        rows = RowsEvent(event.kind, event.body, event.end, f"{event.file}:{event.end}")
        current.changes += 1
        current.row_bytes += len(event.body)
        try:
            rows_begin(rows, table)
        except DamagedLog as error:
            self._refuse(event, current, str(error))
        if counter is not None and current.problem is None:
            counter.add(current, table, rows)

    def _effect(self, event: Event, statement: Statement, current: _Transaction) -> Effect:
        effect, table = effect_of(statement, self._tables.wanted)
        if effect is Effect.ROLLBACK and current.changes:
            self._refuse(event, current, "a transaction with changes was rolled back")
        elif effect is Effect.MARKS:
            current.savepoints[savepoint_in(statement)] = current.changes
        # A rollback to a savepoint leaves changes in the log if it cannot undo all of them.
        elif effect is Effect.UNDOES:
            if current.changes > current.savepoints.get(savepoint_in(statement), 0):
                self._refuse(event, current, "changes were taken back (ROLLBACK TO a savepoint)")
        if table is None or current.problem is not None:
            return effect
        if effect is Effect.EMPTIES and self._on_truncate != "fail":
            return effect
        # An ALTER is checked when the table's next TABLE_MAP event describes its columns.
        if effect not in (Effect.NONE, Effect.DEFINES):
            current.problem = self._changed(event, ".".join(table), effect.value)
        return effect

    def _describe(
        self, event: Event, current: _Transaction, shapes: dict[str, dict[str, str]]
    ) -> None:
        """Compare a table's description with its column types so far."""
        try:
            table = self._tables.describe(event)
        except UnreadableTable as error:
            self._refuse(event, current, str(error))
            return
        if table is None:
            return
        name = f"{table.schema}.{table.name}"
        known = shapes.get(name)
        try:
            found = self.shape_of(table)
        except Unfit as error:
            current.problem = current.problem or self._changed(event, name, str(error))
            return
        if found == known:
            return
        for column, text in found.items():
            before = known.get(column) if known else None
            new = MysqlType.from_text(text)
            if before is not None and not new.holds(old := MysqlType.from_text(before)):
                what = f"column `{column}` was {old} and is {new}"
                current.problem = current.problem or self._changed(event, name, what)
        shapes[name] = current.shapes[name] = found

    def shape_of(self, table: LoggedTable) -> dict[str, str]:
        """The types of the declared columns in a table.

        Raises:
            Unfit: A column is missing, or cannot be read as it is declared.
        """
        known = self._shapes.get(table)
        if known is not None:
            return known
        readers = self._decoder.readers(table)
        found = self._shapes[table] = {}
        for each in declared(self._decoder.schema):
            column = table.columns[readers[each.name][0]].type
            assert column is not None, "it has a reader"
            found[each.name] = column.to_text()
        return found

    def _changed(self, event: Event, table: str, what: str) -> TableChanged:
        return TableChanged(self._source_id, table, f"{event.file}:{event.start}", what)

    def _refuse(self, event: Event, current: _Transaction, reason: str) -> None:
        if current.problem is None:
            place = f"{event.file}:{event.start}"
            current.problem = DecodeFailed(self._source_id, place, reason)


def _ended(current: _Transaction, event: Event) -> _Transaction:
    # The beginning of a file can be addressed in the 32 bits of a request again.
    is_first = event.kind == Kind.FORMAT
    current.file, current.position = event.file, event.start if is_first else event.end
    current.mark = LogMark(binlog_file=event.file, start=event.start, checksum=event.mark)
    return current


class _Taken:
    """The part of the log that the epoch takes."""

    def __init__(
        self,
        start: tuple[str, int],
        shapes: dict[str, dict[str, str]],
        limits: Admission,
        gtids: GtidSet | None,
    ) -> None:
        self.shapes = shapes
        self._file, self._position = start
        self._limits = limits
        self._gtids = gtids
        self._mark: LogMark | None = None
        self._records = self._row_bytes = self._changes = self._bytes = 0

    def take(self, waiting: list[_Transaction], counter: _RowCounter | None) -> bool:
        """Take as many transactions as the limits allow; false if any was left.

        Raises:
            LaminarError: The first transaction with changes to the tables cannot be read.
        """
        if counter is not None:
            counter.settle()
        for each in waiting:
            if each.problem is not None:
                if not self._changes:
                    raise each.problem
                return False
            if self._changes and self._is_beyond(each):
                return False
            self._records += each.rows
            self._row_bytes += each.row_bytes
            self._changes += each.changes
            self._bytes += each.bytes
            self._file, self._position, self._mark = each.file, each.position, each.mark
            self.shapes.update(each.shapes)
            if self._gtids is not None:
                for gtid in each.gtids:
                    self._gtids.add(gtid)
        return True

    def _is_beyond(self, more: _Transaction) -> bool:
        limits = self._limits
        if limits.max_records is not None and self._records + more.rows > limits.max_records:
            return True
        return limits.max_bytes is not None and self._row_bytes + more.row_bytes > limits.max_bytes

    def scanned(self) -> Scanned:
        return Scanned(
            self._file,
            self._position,
            self._mark,
            self.shapes,
            self._changes,
            self._bytes,
        )


class _RowCounter:
    """Counts the rows of many events together, and holds only a limited size of them."""

    def __init__(self) -> None:
        self._waiting: dict[LoggedTable, list[tuple[_Transaction, RowsEvent]]] = {}
        self._size = 0

    def add(self, owner: _Transaction, table: LoggedTable, rows: RowsEvent) -> None:
        """Add an event."""
        self._waiting.setdefault(table, []).append((owner, rows))
        self._size += len(rows.body)
        if self._size >= _COUNT_BYTES:
            self.settle()

    def settle(self) -> None:
        """Count the rows of all added events, and add them to their transactions.

        Raises:
            DamagedLog: The events are damaged.
        """
        for table, found in self._waiting.items():
            counts = count_changes([rows for _, rows in found], table).tolist()
            for (owner, _), count in zip(found, counts, strict=True):
                owner.rows += count
        self._waiting, self._size = {}, 0

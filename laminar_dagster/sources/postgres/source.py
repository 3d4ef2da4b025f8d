"""Tables of a PostgreSQL database as a source: a snapshot of them, then every change.

The slot is the only partition. A range of the stream holds the transactions whose commit records
are in the log from its start to before its end, both of them positions between two log records. A
transaction is never split. Reading consumes nothing: the slot advances when the sinks have
committed, and stays ``retain.wal`` behind them.

The plan pins the ids of the server, its timeline and the database. A slot that was dropped, created
anew, invalidated by the server or advanced by another session raises an error, unless ``on_gap``
asks for a new snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.document import require_utc, to_utc_microseconds
from laminar_dagster.core.errors import (
    AcknowledgeFailed,
    LaminarError,
    RetentionExpired,
    SeekFailed,
    SlotNotFound,
    TimelineChanged,
)
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import (
    Gap,
    PostgresIdentity,
    PostgresPosition,
    PostgresTable,
    SnapshotProgress,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, SnapshotKeeper
from laminar_dagster.core.snapshot import FIRST_SNAPSHOT, SourceSnapshot
from laminar_dagster.sources.changes.columns import declared
from laminar_dagster.sources.changes.planned import admitted_rows, planned, schema_of
from laminar_dagster.sources.postgres.admission import admitted_transactions
from laminar_dagster.sources.postgres.decoding import EPOCH_MICROS
from laminar_dagster.sources.postgres.health import report
from laminar_dagster.sources.postgres.options import PostgresCdcOptions, read_options
from laminar_dagster.sources.postgres.pinned_tables import Known, PinnedTables
from laminar_dagster.sources.postgres.pinning import (
    identity_of,
    require_held,
    require_reached,
    require_same,
)
from laminar_dagster.sources.postgres.reader import PostgresSplitReader, bounds, database_of
from laminar_dagster.sources.postgres.server_state import ServerState
from laminar_dagster.sources.postgres.snapshot import SnapshotTaker
from laminar_dagster.sources.postgres.tables import check_setup, require_key

log = logging.getLogger(__name__)

CONNECTOR: Final = "postgres-cdc"

# A range of the snapshot is split among at most this many tasks.
_MOST_SPLITS: Final = 64
# How many changes are fetched to find the oldest unread one.
_LOOK_AHEAD: Final = 10_000


class PostgresCdcSource:
    """Implements ``core.ports.Source``, ``Snapshotting`` and ``Observable``."""

    def __init__(
        self,
        source_id: SourceId,
        schema: pa.Schema,
        options: PostgresCdcOptions,
        snapshots: SnapshotKeeper,
        where: str = "",
    ) -> None:
        """Describe the source; does no I/O."""
        self._source_id = source_id
        self._schema = schema
        self._options = options
        self._snapshots = snapshots
        self._where = where or f"source `{source_id}`"
        self._database = database_of(str(source_id), options)
        self._tables = PinnedTables(str(source_id), options, declared(schema), self._where)

    @classmethod
    def from_table(
        cls,
        table: SourceTable,
        project: Path,
        defaults: Mapping[str, str],
        snapshots: SnapshotKeeper,
    ) -> PostgresCdcSource:
        """Build the source of a ``CREATE SOURCE TABLE … WITH (connector = 'postgres-cdc', …)``.

        Args:
            table: The statement.
            project: The folder that relative paths start from.
            defaults: Options from the pipeline, for those that the source does not set itself.
            snapshots: Stores its snapshots.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        where = str(table.place)
        options = read_options(table.options, defaults, where, project)
        options = replace(options, key=table.key)
        return cls(table.source_id, schema_of(table), options, snapshots, where)

    @property
    def source_id(self) -> SourceId:
        """The source's name within the pipeline."""
        return self._source_id

    @property
    def address(self) -> str:
        """The server, the database and the tables."""
        server = self._options.server
        tables = ",".join(sorted(self._options.tables))
        return f"postgres://{server.shown}/{server.database}/{tables}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the reader's chunks, with those that the options add."""
        return self._schema

    # --- planning -------------------------------------------------------------------------------

    def prepare(self, previous: SourcePlan | None, start: tuple[SourcePosition, ...]) -> None:
        """Take the snapshot, if there is none yet or the log was lost; see ``Snapshotting``."""
        newest = self._snapshots.newest()
        number = FIRST_SNAPSHOT if newest is None else newest.number + 1
        if newest is not None:
            with self._database.session() as connection:
                state = self._database.look(connection)
            try:
                self._begin(previous, start, newest, state)
            except (SlotNotFound, RetentionExpired, TimelineChanged) as error:
                if self._options.on_gap != "snapshot":
                    raise
                log.warning("%s; a new snapshot is taken, as `on_gap` says", error)
            else:
                return
        elif start:
            reason = "its snapshot is gone from the store, and it was begun with one"
            raise SeekFailed(self._source_id, reason)
        taker = SnapshotTaker(
            str(self._source_id), self._database, self._options, self._schema, self._snapshots
        )
        taker.take(number, self._where, is_anew=newest is not None)

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose how far to read; before there is a snapshot, plan that there is one to take.

        Raises:
            SourceReplaced: The server or database is another, or its log is shorter.
            TimelineChanged: The server is on another timeline.
            SlotNotFound, RetentionExpired: The slot no longer holds the next changes.
            TableChanged, SchemaChanged: A table does not match its pin.
            SourceUnavailable: The server cannot be reached.
            InvalidConfig: The server is not set up for it; says what to do.
        """
        require_utc("clock", clock)
        newest = self._snapshots.newest()
        with self._database.session() as connection:
            state = self._database.look(connection)
            if newest is None:
                check_setup(connection, state, self._options, declared(self._schema), self._where)
                return self._before_snapshot(state)
            require_key(connection, self._options, self._where)
            begin, gaps, pinned = self._begin(previous, start, newest, state)
            known = self._tables.require_same(connection, state, pinned.tables if pinned else {})
            if begin.snapshot is not None:
                snapshot = self._snapshots.find(begin.snapshot.number)
                end = _in_snapshot(snapshot, admitted_rows(snapshot, begin.snapshot.rows, limits))
                pins = self._tables.at_end(known.pins, known, is_all=False)
            else:
                end, pins = self._stream_end(connection, begin, state, limits, known)
        return planned(
            self._source_id,
            identity_of(state, self._options.slot, pins),
            SourceRange(start=begin, end=end),
            gaps,
            previous,
            clock,
            self._options.idle_timeout,
        )

    def _before_snapshot(self, state: ServerState) -> SourcePlan:
        """A placeholder plan, which is never executed: ``prepare`` runs before a plan that is."""
        slot = self._options.slot
        first = SnapshotProgress(number=FIRST_SNAPSHOT, rows=0)
        start = PostgresPosition(lsn=state.flushed, slot=slot, snapshot=first)
        end = PostgresPosition(lsn=state.flushed, slot=slot)
        return SourcePlan(
            source_id=self._source_id,
            identity=identity_of(state, slot),
            ranges=(SourceRange(start=start, end=end),),
        )

    def _begin(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        newest: SourceSnapshot,
        state: ServerState,
    ) -> tuple[PostgresPosition, tuple[Gap, ...], PostgresIdentity | None]:
        """Where the next epoch begins, the gaps before it, and the identity pinned there.

        Raises:
            RefusedError: The slot does not hold the next changes.
        """
        pinned: PostgresIdentity | None = None
        gaps: tuple[Gap, ...] = ()
        if not start:
            begin = _in_snapshot(newest, 0)
            pinned = _identity(newest.identity)
        else:
            begin = self._position(start)
            is_passed = newest.is_behind(begin) or (
                begin.snapshot is not None and begin.snapshot.number == newest.number
            )
            if previous is not None and is_passed:
                pinned = _identity(previous.identity)
            if not is_passed:
                lost = SourceRange(start=begin, end=_in_snapshot(newest, 0))
                reason = f"the log was lost; snapshot {newest.number} follows (on_gap: snapshot)"
                gaps = (Gap(lost=lost, reason=reason),)
                begin = _in_snapshot(newest, 0)
                pinned = _identity(newest.identity)
        # Check first: if the log is shorter, a new snapshot would not help.
        require_reached(str(self._source_id), state, begin.lsn)
        require_same(str(self._source_id), state, self._options.slot, pinned)
        require_held(str(self._source_id), state, self._options.slot, begin.lsn)
        return begin, gaps, pinned

    def _stream_end(
        self,
        connection: Connection,
        begin: PostgresPosition,
        state: ServerState,
        limits: Admission,
        known: Known,
    ) -> tuple[PostgresPosition, dict[str, PostgresTable]]:
        taken = admitted_transactions(
            self._database, connection, begin.lsn, limits, self._tables, known.pins
        )
        end = taken.end
        if end is None and state.checkpoint - begin.lsn >= self._options.heartbeat_wal:
            # So much log without our changes should be released by the slot. None precede the
            # checkpoint, which is between two log records, unlike the end of the flushed log.
            end = state.checkpoint
        pins = self._tables.at_end(taken.pins, known, is_all=taken.is_all)
        return begin if end is None else PostgresPosition(lsn=end, slot=begin.slot), pins

    def verify(self, plan: SourcePlan) -> None:
        """Check that the slot is that of the plan, and still holds its range."""
        with self._database.session() as connection:
            state = self._database.look(connection)
        require_same(str(self._source_id), state, self._options.slot, _identity(plan.identity))
        for part in plan.ranges:
            start, end = bounds(str(self._source_id), part)
            if part.is_empty:
                continue
            if start.snapshot is not None:
                self._snapshots.find(start.snapshot.number)
            else:
                require_held(str(self._source_id), state, self._options.slot, start.lsn, end.lsn)

    def identity(self) -> PostgresIdentity:
        """The ids of the server, its timeline and the database, and the slot."""
        with self._database.session() as connection:
            return identity_of(self._database.look(connection), self._options.slot)

    # --- reading --------------------------------------------------------------------------------

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Split a range of the snapshot by files. The stream is not split: one reader a slot."""
        start, end = bounds(str(self._source_id), part)
        if part.is_empty:
            return ()
        if start.snapshot is None:
            return (part,)
        snapshot = self._snapshots.find(start.snapshot.number)
        last = snapshot.rows if end.snapshot is None else end.snapshot.rows
        edges = [start.snapshot.rows]
        for _, begin, until in snapshot.pieces(start.snapshot.rows, last):
            edges.append(edges[-1] + until - begin)
        if len(edges) < 2:
            return (part,)
        step = -(-(len(edges) - 1) // _MOST_SPLITS)
        edges = [*edges[:-1:step], edges[-1]]
        places = [start, *(_in_snapshot(snapshot, row) for row in edges[1:-1]), end]
        return tuple(SourceRange(start=one, end=two) for one, two in pairwise(places))

    def reader(self) -> PostgresSplitReader:
        """A reader for the executors, which must reach the server under the same name."""
        return PostgresSplitReader(
            str(self._source_id), self._schema, self._options, self._snapshots
        )

    def check_seek(self, position: SourcePosition) -> None:
        """Find out whether reading can resume at a position.

        Raises:
            SlotNotFound, RetentionExpired, SourceReplaced: It cannot resume there; says why.
        """
        wanted = self._position((position,))
        if wanted.snapshot is not None:
            self._snapshots.find(wanted.snapshot.number)
        with self._database.session() as connection:
            state = self._database.look(connection)
        require_held(str(self._source_id), state, self._options.slot, wanted.lsn)

    # --- after an epoch -------------------------------------------------------------------------

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Let the server remove the log that no epoch needs any more, but for ``retain.wal``.

        Raises:
            AcknowledgeFailed: The slot was not advanced.
        """
        if not positions:
            return
        position = self._position(positions)
        target = position.lsn - (self._options.retain_wal or 0)
        try:
            with self._database.session() as connection:
                slot = self._database.look(connection).slot
                if slot is not None and not slot.is_lost and slot.confirmed < target:
                    self._database.advance(connection, target)
        except LaminarError as error:
            raise AcknowledgeFailed(self._source_id, str(error)) from error

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        """The source's lag in bytes and seconds, and how much log the slot retains."""
        server = self._options.server
        details = {"server": server.shown, "database": server.database, "slot": self._options.slot}
        try:
            with self._database.session() as connection:
                state = self._database.look(connection)
                position = self._position(positions) if positions else None
                waiting = None
                if position is not None and state.slot is not None and not state.slot.is_lost:
                    found, _ = self._database.transactions(connection, _LOOK_AHEAD)
                    waiting = next((each for each in found if each.lsn >= position.lsn), None)
        except LaminarError as error:
            return HealthReport.unreachable(error, details)
        now = to_utc_microseconds(datetime.now(UTC)) - EPOCH_MICROS
        seconds = None if waiting is None else max(0.0, (now - waiting.committed_at) / 1e6)
        name = str(self._source_id)
        return report(name, state, self._options.slot, position, seconds, details)

    def _position(self, positions: tuple[SourcePosition, ...]) -> PostgresPosition:
        """The position of the slot.

        Raises:
            SeekFailed: It belongs to another source or slot.
        """
        match positions:
            case (PostgresPosition(slot=slot) as found,) if slot == self._options.slot:
                return found
            case (PostgresPosition(slot=slot),):
                reason = f"it was read from slot {slot}, and is to be read from another"
                raise SeekFailed(self._source_id, f"{reason}, {self._options.slot}")
            case _:
                raise SeekFailed(self._source_id, "it has no position in a slot")


def _identity(found: object) -> PostgresIdentity | None:
    return found if isinstance(found, PostgresIdentity) else None


def _in_snapshot(snapshot: SourceSnapshot, row: int) -> PostgresPosition:
    """The position of a row of a snapshot; after the last row, the beginning of the stream."""
    end = snapshot.position
    assert isinstance(end, PostgresPosition)
    if row >= snapshot.rows:
        return end
    progress = SnapshotProgress(number=snapshot.number, rows=row)
    return PostgresPosition(lsn=end.lsn, slot=end.slot, snapshot=progress)

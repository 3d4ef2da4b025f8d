"""Takes the snapshot of a source: creates the slot, and copies the tables as they are there.

1. Take a lock that the server releases when this process ends.
2. Look for a slot that a crash has left; only one that a draft in the store names is dropped, even
   if the source has been given another slot since.
3. Lock the tables, so that nobody rewrites one before it is copied.
4. Write a mark with the slot's name to the store, then create the slot, which exports a snapshot.
5. Copy the tables, each connection as that snapshot shows them.
6. Write the snapshot's description, which makes it valid.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.errors import InvalidConfig, ObjectExists, SourceUnavailable
from laminar_dagster.core.ids import FileName
from laminar_dagster.core.offsets import PostgresPosition, PostgresTable
from laminar_dagster.core.ports import SnapshotKeeper
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.sources.changes.columns import declared
from laminar_dagster.sources.postgres.copying import Piece, TableCopier, pieces_of
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.postgres.decoding import lsn_text
from laminar_dagster.sources.postgres.locked_tables import locking_sessions
from laminar_dagster.sources.postgres.options import PostgresCdcOptions
from laminar_dagster.sources.postgres.pinned_tables import PinnedTables
from laminar_dagster.sources.postgres.pinning import identity_of
from laminar_dagster.sources.postgres.reader import database_of
from laminar_dagster.sources.postgres.server_state import ServerState
from laminar_dagster.sources.postgres.tables import Table, check_setup

log = logging.getLogger(__name__)

_MARK: Final = FileName("slot")


@dataclass(frozen=True, slots=True)
class SnapshotTaker:
    """Takes the snapshots of one source."""

    source_id: str
    database: Database
    options: PostgresCdcOptions = field(repr=False)
    schema: pa.Schema
    keeper: SnapshotKeeper

    def take(self, number: int, where: str, *, is_anew: bool) -> None:
        """Take a snapshot, unless another process has.

        Args:
            number: The number of the snapshot.
            where: The place of the statement, for errors.
            is_anew: Whether the slot was this source's before, so that it may be dropped.

        Raises:
            SourceUnavailable: Another process is taking it.
            InvalidConfig: The server is not set up for it, or the slot is not this source's.
        """
        with self.database.session() as connection:
            # Step 1.
            if not self.database.has_lock(connection):
                reason = "another process takes its snapshot"
                raise SourceUnavailable(self.source_id, reason)
            newest = self.keeper.newest()
            if newest is not None and newest.number >= number:
                return
            state = self.database.look(connection)
            tables = check_setup(connection, state, self.options, declared(self.schema), where)
            # Step 2.
            begun = self._begun(number, state)
            self._remove_abandoned(connection, begun - {self.options.slot})
            is_ours = is_anew or self.options.slot in begun
            if self.options.snapshot == "never" and state.slot is not None and not is_anew:
                self._adopt(number, state)
                return
            self._remove_left_over(connection, state, is_ours, where)
            # Step 3.
            pins: dict[str, PostgresTable] = {}
            with self._held(tables) as sessions:
                if sessions:
                    # Check again: a table may have changed before it was locked.
                    tables = check_setup(
                        connection, state, self.options, declared(self.schema), where
                    )
                    pinned = PinnedTables(
                        self.source_id, self.options, declared(self.schema), where
                    )
                    pins = pinned.as_they_are(connection)
                # Step 4.
                draft = self.keeper.begin(number)
                mark = f"{self.options.slot}\n{state.system_id}"
                self.keeper.write(draft, _MARK, 0, mark.encode())
                with self.database.session(replication=True) as replication:
                    begin, exported = self.database.create_slot(replication)
                    slot = self.options.slot
                    log.info(
                        "source %s: slot %s begins at %s", self.source_id, slot, lsn_text(begin)
                    )
                    # Step 5.
                    files: tuple[SnapshotFile, ...] = ()
                    if sessions:
                        copier = TableCopier(
                            self.schema,
                            lsn_text(begin),
                            exported,
                            self.keeper,
                            draft,
                            self.options.snapshot_file,
                        )
                        files = copier.copy(self._pieces(tables), sessions)
            # Step 6.
            position = PostgresPosition(lsn=begin, slot=self.options.slot)
            self.keeper.finish(draft, position, identity_of(state, self.options.slot, pins), files)

    def _pieces(self, tables: Mapping[str, Table]) -> list[Piece]:
        wanted = [tables[name] for name in self.options.tables]
        return pieces_of(wanted, self.options.snapshot_file)

    def _held(self, tables: Mapping[str, Table]) -> AbstractContextManager[list[Connection]]:
        """Connections that lock the tables and copy them; none if nothing is copied."""
        if self.options.snapshot != "initial":
            return nullcontext([])
        count = min(self.options.snapshot_workers, len(self._pieces(tables)))
        wanted = [tables[name] for name in self.options.tables]
        return locking_sessions(self.database, wanted, count)

    def _adopt(self, number: int, state: ServerState) -> None:
        """Begin at an existing slot's position, without a copy of the tables."""
        assert state.slot is not None
        position = PostgresPosition(lsn=state.slot.confirmed, slot=self.options.slot)
        identity = identity_of(state, self.options.slot)
        try:
            self.keeper.finish(self.keeper.begin(number), position, identity, ())
        except ObjectExists:
            log.info("source %s: another process was faster", self.source_id)

    def _begun(self, number: int, state: ServerState) -> frozenset[str]:
        """The slots on this server with which copies of the same number were begun."""
        marks = [each.decode().partition("\n") for each in self.keeper.marks(number, _MARK)]
        # Marks of older versions do not name the server.
        return frozenset(slot for slot, _, system in marks if system in ("", state.system_id))

    def _remove_abandoned(self, connection: Connection, slots: frozenset[str]) -> None:
        """Drop slots begun under other names: nobody would read them, and the log would grow.

        Raises:
            SourceUnavailable: The process that began one is still running.
        """
        for slot in sorted(slots):
            abandoned = database_of(self.source_id, replace(self.options, slot=slot))
            if abandoned.look(connection).slot is None:
                continue
            if not abandoned.has_lock(connection):
                reason = f"another process takes its snapshot, with slot {slot}"
                raise SourceUnavailable(self.source_id, reason)
            log.warning("source %s: slot %s was left by a crash", self.source_id, slot)
            abandoned.drop_slot(connection)

    def _remove_left_over(
        self, connection: Connection, state: ServerState, is_ours: bool, where: str
    ) -> None:
        if state.slot is None:
            return
        if not is_ours:
            problem = f"the server has a slot {self.options.slot} already, and it is not known here"
            hint = "take another name; or drop it; or begin where it stands: snapshot = 'never'"
            raise InvalidConfig(where, problem, hint)
        log.warning("source %s: slot %s is made anew", self.source_id, self.options.slot)
        self.database.drop_slot(connection)

"""The state of a server and of a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection

_LOOK: Final = sql.SQL("""
    SELECT (pg_catalog.pg_control_system()).system_identifier::text,
           ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(flushed), 1, 8))::bit(32)::int8,
           (SELECT oid::int8 FROM pg_catalog.pg_database
            WHERE datname = pg_catalog.current_database()),
           (flushed - '0/0'::pg_lsn)::int8,
           ((pg_catalog.pg_control_checkpoint()).redo_lsn - '0/0'::pg_lsn)::int8,
           pg_catalog.current_setting('wal_level'),
           pg_catalog.current_setting('server_encoding'),
           pg_catalog.current_setting('server_version')
    FROM (SELECT pg_catalog.pg_current_wal_flush_lsn() AS flushed) AS log
""")
_SLOT: Final = sql.SQL("""
    SELECT plugin::text, database::text, active, wal_status,
           (confirmed_flush_lsn - '0/0'::pg_lsn)::int8,
           (restart_lsn - '0/0'::pg_lsn)::int8, safe_wal_size
    FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
""")


@dataclass(frozen=True, slots=True)
class SlotState:
    """A replication slot, as the server shows it.

    Attributes:
        confirmed: Transactions that were committed before this position are not sent.
        restart: The log from this position is retained for it; None once it is lost.
        safe_bytes: How much more may be written before the server invalidates it; None: no limit.
    """

    plugin: str
    database: str
    is_active: bool
    wal_status: str | None
    confirmed: int
    restart: int | None
    safe_bytes: int | None

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed log that the slot needs."""
        return self.wal_status == "lost" or self.restart is None


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server at one moment.

    Attributes:
        flushed: The position up to which the log is on disk.
        checkpoint: A position before that, which is between two log records.
    """

    system_id: str
    timeline: int
    database: int
    flushed: int
    checkpoint: int
    wal_level: str
    encoding: str
    version: str
    slot: SlotState | None


def look_at(connection: Connection, slot: str) -> ServerState:
    """Query the state of the server and the slot."""
    found = connection.execute(_LOOK).fetchone()
    assert found is not None
    told = connection.execute(_SLOT, (slot,)).fetchone()
    state = None
    if told is not None:
        plugin, database, active, status, confirmed, restart, safe = told
        state = SlotState(
            plugin or "", database or "", active, status, confirmed or 0, restart, safe
        )
    system_id, timeline, oid, flushed, checkpoint, wal_level, encoding, version = found
    return ServerState(
        system_id, timeline, oid, flushed, checkpoint, wal_level, encoding, version, state
    )

"""The database of a source: sessions, the server's state, and the replication slot.

Changes are read by SQL: ``pg_logical_slot_peek_binary_changes`` consumes nothing, so a range can
be read any number of times. See decision 25.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection, Server
from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.sources.postgres.copy_out import copy_out
from laminar_dagster.sources.postgres.decoding import lsn_text
from laminar_dagster.sources.postgres.failures import (
    OBJECT_IN_USE,
    while_asking,
    while_connecting,
)
from laminar_dagster.sources.postgres.messages import COPY_HEADER, COPY_TRAILER
from laminar_dagster.sources.postgres.server_state import ServerState, look_at

# The format of values must not depend on settings of the server, the database or the role.
_SESSION: Final = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "row_security": "off",
    "idle_in_transaction_session_timeout": "0",
}
_SET: Final = sql.SQL(
    "SELECT pg_catalog.set_config(name, value, false) "
    "FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
)
_CHANGES: Final = sql.SQL("""
    pg_catalog.pg_logical_slot_peek_binary_changes(
        {slot}, {upto}, {most}, 'proto_version', '1', 'publication_names', {publication})
""")
# Many messages a row: their lengths, and the messages themselves. The rows must depend on the range
# alone: not on what the slot has before it, nor on where the server describes a table (R), which it
# does once a session. Of what precedes the range, only those descriptions are sent.
_READ: Final = sql.SQL("""
    COPY (
        SELECT string_agg(int4send(length(data)), ''::bytea ORDER BY place),
               string_agg(data, ''::bytea ORDER BY place)
        FROM (
            SELECT data, place,
                   coalesce(sum(length(data)) FILTER (WHERE is_inside AND kind <> 82)
                            OVER (ORDER BY place ROWS UNBOUNDED PRECEDING), 0) / {size} AS block
            FROM (
                SELECT data, place, get_byte(data, 0) AS kind,
                       bool_or(get_byte(data, 0) = 66 AND substring(data FROM 2 FOR 8) >= {start})
                       OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS is_inside
                FROM {changes} WITH ORDINALITY AS change (lsn, xid, data, place)
                WHERE get_byte(data, 0) IN (66, 68, 73, 82, 84, 85)
            ) AS known
            WHERE is_inside OR kind = 82
        ) AS sized
        GROUP BY block ORDER BY block
    ) TO STDOUT (FORMAT binary)
""")
# One row a transaction: all of its messages have the same xid, and come together.
_TRANSACTIONS: Final = sql.SQL("""
    SELECT (array_agg(data) FILTER (WHERE get_byte(data, 0) = 67))[1],
           count(*) FILTER (WHERE get_byte(data, 0) IN (68, 73, 84, 85)),
           coalesce(sum(length(data)) FILTER (WHERE get_byte(data, 0) IN (68, 73, 84, 85)),
                    0)::int8,
           count(*),
           array_agg(place) FILTER (WHERE get_byte(data, 0) = 82),
           array_agg(data) FILTER (WHERE get_byte(data, 0) = 82)
    FROM {changes} WITH ORDINALITY AS change (lsn, xid, data, place)
    GROUP BY xid ORDER BY min(place)
""")
# The last transaction, and those that describe tables, each with the one before it.
_DESCRIBING: Final = sql.SQL("""
    SELECT done, before, places, tables FROM (
        SELECT done, places, tables, lag(done) OVER (ORDER BY place) AS before,
               lead(done) OVER (ORDER BY place) AS after
        FROM (
            SELECT min(place) AS place,
                   (array_agg(data) FILTER (WHERE get_byte(data, 0) = 67))[1] AS done,
                   array_agg(place) FILTER (WHERE get_byte(data, 0) = 82) AS places,
                   array_agg(data) FILTER (WHERE get_byte(data, 0) = 82) AS tables
            FROM {changes} WITH ORDINALITY AS change (lsn, xid, data, place)
            WHERE get_byte(data, 0) IN (67, 82) GROUP BY xid
        ) AS whole
        WHERE done IS NOT NULL
    ) AS known
    WHERE tables IS NOT NULL OR after IS NULL ORDER BY done
""")
_ADVANCE: Final = sql.SQL("SELECT pg_catalog.pg_replication_slot_advance(%s, %s::pg_lsn)")
_DROP: Final = sql.SQL("SELECT pg_catalog.pg_drop_replication_slot(%s)")
_LOCK: Final = sql.SQL("SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtext(%s)::int8)")
_CREATE: Final = sql.SQL("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT")

# The largest number of changes that the function accepts.
_MANY: Final = 2**31 - 1
# About how many bytes of messages are in one row, and decoded together.
_BLOCK_BYTES: Final = 4 * 1024 * 1024
_PAUSE: Final = 0.05
_CANCEL_AGAIN_SECONDS: Final = 0.5
_LETTING_GO_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction in the stream of a slot.

    Attributes:
        lsn: The position of its commit record.
        end: The position after it.
        committed_at: In microseconds since 2000.
        relations: The table descriptions in it, which precede a table's first change and follow
            each change of its definition.
    """

    lsn: int
    end: int
    committed_at: int
    changes: int = 0
    size_bytes: int = 0
    relations: tuple[bytes, ...] = ()


class Database:
    """Queries one database. Each session closes its connection at its end."""

    def __init__(
        self,
        source_id: str,
        server: Server,
        slot: str,
        publication: str,
        slot_timeout: float,
        statement_timeout: float,
    ) -> None:
        """Describe the database; does no I/O."""
        self._source_id = source_id
        self._server = server
        self._slot = slot
        self._publication = publication
        self._slot_timeout = slot_timeout
        self._statement_timeout = statement_timeout

    @property
    def server(self) -> Server:
        """How to connect."""
        return self._server

    @contextmanager
    def session(self, *, replication: bool = False) -> Iterator[Connection]:
        """A connection whose values have the format that ``values`` expects.

        Raises:
            LaminarError: It cannot be opened, or a statement within failed.
        """
        settings = {
            **_SESSION,
            "statement_timeout": str(round(self._statement_timeout * 1000)),
            # An ALTER TABLE, running or waiting for its lock, may block us for very long.
            "lock_timeout": str(max(1, round(self._slot_timeout * 1000))),
        }
        try:
            connection = self._server.connect(
                f"laminar source {self._source_id}", replication=replication
            )
        except psycopg.Error as error:
            raise while_connecting(error, self._source_id, self._server) from None
        try:
            with connection:
                if not replication:
                    connection.execute(_SET, ([*settings], [*settings.values()]))
                yield connection
        except psycopg.Error as error:
            raise while_asking(error, self._source_id, self._server, self._slot) from None

    def look(self, connection: Connection) -> ServerState:
        """The present state of the server and the slot."""
        return look_at(connection, self._slot)

    def transactions(self, connection: Connection, most: int) -> tuple[list[Transaction], bool]:
        """The transactions that the slot holds, in order, and whether there may be more.

        Args:
            connection: A session.
            most: About how many changes to fetch; a transaction is never split.
        """
        query = _TRANSACTIONS.format(changes=self._changes(None, min(most, _MANY)))
        rows = self._patiently(lambda: connection.execute(query).fetchall())
        found = [
            _transaction(data, count, size, places, tables)
            for data, count, size, _, places, tables in rows
            if data
        ]
        return found, sum(row[3] for row in rows) >= most

    def describing_transactions(
        self, connection: Connection
    ) -> list[tuple[Transaction, Transaction | None]]:
        """The transactions that describe tables, and the last one; each with its predecessor."""
        query = _DESCRIBING.format(changes=self._changes(None, None))
        rows = self._patiently(lambda: connection.execute(query).fetchall())
        return [
            (
                _transaction(data, places=places, tables=tables),
                None if before is None else _transaction(before),
            )
            for data, before, places, tables in rows
        ]

    def changes(self, connection: Connection, start: int, end: int) -> Iterator[bytes]:
        """The messages of a range, many of them in each row of a binary COPY.

        The rows are the same every time. They may include a transaction from after the range.
        """
        query = _READ.format(
            changes=self._changes(end, None),
            start=sql.Literal(start.to_bytes(8, "big")),
            size=sql.Literal(_BLOCK_BYTES),
        )

        def begin() -> Iterator[bytes]:
            rows = _without_frame(copy_out(connection, query))
            # Fetching the first row acquires the slot, which may fail and be retried.
            first = next(rows, None)
            return iter(()) if first is None else _before(first, rows)

        yield from self._patiently(begin)

    def advance(self, connection: Connection, lsn: int) -> None:
        """Let the slot no longer retain the log before an LSN."""
        self._patiently(lambda: connection.execute(_ADVANCE, (self._slot, lsn_text(lsn))))

    def create_slot(self, replication: Connection) -> tuple[int, str]:
        """Create the slot.

        Returns:
            The position at which it begins, and the name of a snapshot of the database there. The
            snapshot exists until the next command on the connection.

        Raises:
            SourceUnavailable: Another session's transaction stays open for too long.
        """
        statement = _CREATE.format(slot=sql.Identifier(self._slot)).as_bytes(replication)
        # The server waits for all transactions that are open now to end: limit the wait.
        over = threading.Event()
        watch = threading.Thread(target=self._cancel_later, args=(replication, over), daemon=True)
        watch.start()
        try:
            result = replication.pgconn.exec_(statement)
        finally:
            over.set()
            watch.join()
        if result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014":
            reason = "transactions that were open when the slot was to be made have not ended"
            raise SourceUnavailable(self._source_id, f"{reason}: see pg_stat_activity")
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            reason = result.get_error_message(replication.info.encoding)
            raise psycopg.OperationalError(reason)
        begin, name = result.get_value(0, 1), result.get_value(0, 2)
        assert begin is not None
        assert name is not None
        high, low = begin.decode().split("/")
        return int(high, 16) << 32 | int(low, 16), name.decode()

    def _cancel_later(self, replication: Connection, over: threading.Event) -> None:
        """Cancel a statement that takes too long."""
        wait = self._slot_timeout
        while not over.wait(wait):
            replication.cancel()
            # The server ignores a cancel that arrives before the statement has begun.
            wait = _CANCEL_AGAIN_SECONDS

    def drop_slot(self, connection: Connection) -> None:
        """Drop the slot."""
        self._patiently(lambda: connection.execute(_DROP, (self._slot,)))

    def has_lock(self, connection: Connection) -> bool:
        """Take the lock that guards creating the slot; it is held until the connection ends.

        Retry for a moment: a server does not notice at once that a lock's connection has ended.
        """
        until = time.monotonic() + _LETTING_GO_SECONDS
        while True:
            found = connection.execute(_LOCK, (f"laminar slot {self._slot}",)).fetchone()
            if found and found[0]:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)

    def _changes(self, end: int | None, most: int | None) -> sql.Composed:
        return _CHANGES.format(
            slot=sql.Literal(self._slot),
            upto=sql.Literal(None if end is None else lsn_text(end)),
            most=sql.Literal(most),
            publication=sql.Literal(f'"{self._publication}"'),
        )

    def _patiently(self, ask: Any) -> Any:
        """Retry while another session reads the slot: only one may at a time.

        Raises:
            SourceUnavailable: The slot was in use for longer than ``slot_timeout``.
        """
        until = time.monotonic() + self._slot_timeout
        while True:
            try:
                return ask()
            except psycopg.Error as error:
                if error.sqlstate != OBJECT_IN_USE:
                    raise
                if time.monotonic() > until:
                    reason = f"slot {self._slot} is read by somebody else"
                    raise SourceUnavailable(self._source_id, reason) from None
                time.sleep(_PAUSE)


def _transaction(
    commit: bytes,
    changes: int = 0,
    size: int = 0,
    places: Sequence[int] | None = None,
    tables: Sequence[bytes] | None = None,
) -> Transaction:
    lsn, end, moment = (int.from_bytes(commit[at : at + 8], "big") for at in (2, 10, 18))
    # Sorted here, because in SQL the server would have to sort all changes.
    said = sorted(zip(places or (), tables or (), strict=True))
    return Transaction(lsn, end, moment, changes, size, tuple(data for _, data in said))


def _without_frame(rows: Iterator[bytes]) -> Iterator[bytes]:
    """The rows of a binary COPY without its header and trailer."""
    for number, row in enumerate(rows):
        data = row[len(COPY_HEADER) :] if not number else row
        if data and data != COPY_TRAILER:
            yield data


def _before(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest

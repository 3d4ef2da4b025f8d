"""The ledger table of the PostgreSQL sinks of a schema, with a row per sink.

A committer locks its sink's row before it reads it. A sink's first commit has no row to lock, so it
inserts an empty one: a concurrent committer blocks on that, and then sees what was written.
"""

from __future__ import annotations

from typing import Final

from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import Published
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.ledger import LEDGER_TABLE, Standing, attested, standing
from laminar_dagster.sinks.postgres.connection import Limits, transaction

# CREATE TABLE IF NOT EXISTS fails when run concurrently, so take an advisory lock (any number).
_LOCK: Final = sql.SQL("SELECT pg_catalog.pg_advisory_xact_lock(7809636843091880818)")
_FIND: Final = sql.SQL("""
    SELECT 1 FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
""")
_CREATE: Final = sql.SQL("""
    CREATE TABLE IF NOT EXISTS {ledger} (
        pipeline      text NOT NULL,
        sink          text NOT NULL,
        epoch         bigint NOT NULL CHECK (epoch >= 0),
        table_name    text,
        output_sha256 text NOT NULL,
        committed_at  timestamp with time zone NOT NULL,
        PRIMARY KEY (pipeline, sink)
    )
""")
_ADD: Final = sql.SQL("""
    INSERT INTO {ledger} (pipeline, sink, epoch, output_sha256, committed_at)
    VALUES (%s, %s, 0, '', pg_catalog.clock_timestamp())
    ON CONFLICT (pipeline, sink) DO NOTHING
""")
_READ: Final = sql.SQL("SELECT epoch, table_name FROM {ledger} WHERE pipeline = %s AND sink = %s")
_READ_OUTPUT: Final = sql.SQL(
    "SELECT epoch, output_sha256 FROM {ledger} WHERE pipeline = %s AND sink = %s"
)
_FOR_UPDATE: Final = sql.SQL(" FOR UPDATE")
_MOVE: Final = sql.SQL("""
    UPDATE {ledger} SET
        epoch = %s,
        table_name = coalesce(%s, table_name),
        output_sha256 = %s,
        committed_at = pg_catalog.clock_timestamp()
    WHERE pipeline = %s AND sink = %s
""")


class Ledger:
    """The ledger row of one sink."""

    def __init__(self, schema: str, pipeline: PipelineName, sink_id: SinkId) -> None:
        """Describe the row. Nothing is read."""
        self._schema = schema
        self._row = (str(pipeline), str(sink_id))
        self._table = sql.Identifier(schema, LEDGER_TABLE)
        # In a statement with parameters, a '%' in a name would be taken for a placeholder.
        self._with_values = sql.Identifier(schema.replace("%", "%%"), LEDGER_TABLE)

    def exists(self, connection: Connection) -> bool:
        """Whether the ledger table exists."""
        return connection.execute(_FIND, (self._schema, LEDGER_TABLE)).fetchone() is not None

    def make(self, connection: Connection, limits: Limits) -> None:
        """Create the table in its own transaction, so that first commits do not block each other.

        Raises:
            psycopg.Error: The table may not be created.
        """
        with transaction(connection, limits):
            connection.execute(_LOCK)
            connection.execute(_CREATE.format(ledger=self._table))
            connection.execute("COMMIT")

    def read(self, connection: Connection) -> Standing:
        """The last epoch, and the table that holds it if any epoch had columns."""
        if not self.exists(connection):
            return None, None
        row = connection.execute(_READ.format(ledger=self._with_values), self._row).fetchone()
        return standing(row)

    def read_output(self, connection: Connection) -> Published | None:
        """The last epoch, and the digest of its output."""
        if not self.exists(connection):
            return None
        read = _READ_OUTPUT.format(ledger=self._with_values)
        return attested(connection.execute(read, self._row).fetchone())

    def lock(self, connection: Connection) -> Standing:
        """Like ``read``, with the row locked until the transaction ends."""
        connection.execute(_ADD.format(ledger=self._with_values), self._row)
        read = _READ.format(ledger=self._with_values) + _FOR_UPDATE
        return standing(connection.execute(read, self._row).fetchone())

    def move(
        self, connection: Connection, epoch: EpochNumber, table: str | None, sha256: str
    ) -> None:
        """Update the locked row.

        Raises:
            Unwritable: Not exactly one row was updated, such as because of a trigger.
        """
        move = _MOVE.format(ledger=self._with_values)
        moved = connection.execute(move, (int(epoch), table, sha256, *self._row)).rowcount
        if moved != 1:
            raise Unwritable(
                f"{moved} rows of `{LEDGER_TABLE}` were moved, not one;"
                " look for a trigger or a rule on it"
            )

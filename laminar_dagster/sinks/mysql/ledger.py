"""The ledger table of the MySQL sinks of a database, with a row per sink.

A committer locks its sink's row before it reads it. A sink's first commit has no row to lock, so it
inserts an empty one: a concurrent committer blocks on that, and then sees what was written.
"""

from __future__ import annotations

from typing import Any, Final

import pymysql

from laminar_dagster.clients.mysql.errors import code_of
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import Published
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.ledger import LEDGER_TABLE, Standing, attested, standing
from laminar_dagster.sinks.mysql.catalogue import engine_of, require_transactions
from laminar_dagster.sinks.mysql.connection import Facts

# The table's name needs no quoting.
_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS _laminar_ledger (
        pipeline      varchar(255) NOT NULL,
        sink          varchar(255) NOT NULL,
        epoch         bigint unsigned NOT NULL,
        table_name    varchar(64),
        output_sha256 varchar(64) NOT NULL,
        committed_at  datetime(6) NOT NULL,
        PRIMARY KEY (pipeline, sink)
    ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation}
"""
_ADD: Final = """
    INSERT INTO _laminar_ledger (pipeline, sink, epoch, output_sha256, committed_at)
    VALUES (%s, %s, 0, '', UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE epoch = epoch
"""
_READ: Final = "SELECT epoch, table_name FROM _laminar_ledger WHERE pipeline = %s AND sink = %s"
_READ_OUTPUT: Final = (
    "SELECT epoch, output_sha256 FROM _laminar_ledger WHERE pipeline = %s AND sink = %s"
)
_MOVE: Final = """
    UPDATE _laminar_ledger SET
        epoch = %s,
        table_name = COALESCE(%s, table_name),
        output_sha256 = %s,
        committed_at = UTC_TIMESTAMP(6)
    WHERE pipeline = %s AND sink = %s
"""
_NO_SUCH_TABLE: Final = 1146


class Ledger:
    """The ledger row of one sink."""

    def __init__(self, pipeline: PipelineName, sink_id: SinkId) -> None:
        """Describe the row. Nothing is read."""
        self._row = (str(pipeline), str(sink_id))

    def read(self, session: Session) -> Standing:
        """The last epoch, and the table that holds it if any epoch had columns."""
        return standing(self._row_by(session, _READ))

    def read_output(self, session: Session) -> Published | None:
        """The last epoch, and the digest of its output."""
        return attested(self._row_by(session, _READ_OUTPUT))

    def make(self, session: Session, facts: Facts) -> None:
        """Create the table if there is none. Call it outside of a transaction.

        Raises:
            Unwritable: The existing table has no transactions, so it could differ from the rows.
            pymysql.Error: The table may not be created.
        """
        engine = engine_of(session, LEDGER_TABLE)
        if engine is None:
            session.run(_CREATE.format(collation=facts.collation))
            engine = engine_of(session, LEDGER_TABLE)
        if engine is not None:
            require_transactions(LEDGER_TABLE, engine)

    def lock(self, session: Session) -> Standing:
        """Like ``read``, with the row locked until the transaction ends."""
        session.run(_ADD, self._row)
        return standing(next(iter(session.run(f"{_READ} FOR UPDATE", self._row).rows), None))

    def move(self, session: Session, epoch: EpochNumber, table: str | None, sha256: str) -> None:
        """Update the locked row.

        Raises:
            Unwritable: Not exactly one row was updated, such as because of a trigger.
        """
        moved = session.run(_MOVE, (int(epoch), table, sha256, *self._row)).affected
        if moved != 1:
            raise Unwritable(
                f"{moved} rows of `{LEDGER_TABLE}` were moved, not one; look for a trigger on it"
            )

    def _row_by(self, session: Session, statement: str) -> Any:
        """The sink's row; None if there is no row, or no table yet."""
        try:
            return next(iter(session.run(statement, self._row).rows), None)
        except pymysql.ProgrammingError as error:
            if code_of(error) != _NO_SUCH_TABLE:
                raise
            return None

"""A table in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.hanging_up import hung_up_after
from laminar_dagster.clients.hosts import same_spelling
from laminar_dagster.clients.postgres.failures import describe
from laminar_dagster.clients.postgres.server import Connection, Server
from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    InvalidName,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import HeldKeys, Published, StagedOutput, TransactionProgress
from laminar_dagster.sinks.changes import Mode, Unwritable
from laminar_dagster.sinks.key_counts import NONE_HELD
from laminar_dagster.sinks.ledger import LEDGER_TABLE, Decision, decide, require_kept
from laminar_dagster.sinks.options import problem_with_key, told_at
from laminar_dagster.sinks.portions import portions
from laminar_dagster.sinks.postgres import errors
from laminar_dagster.sinks.postgres.catalogue import has_table, may_create
from laminar_dagster.sinks.postgres.connection import (
    Limits,
    end_stuck_sessions,
    transaction,
)
from laminar_dagster.sinks.postgres.ledger import Ledger
from laminar_dagster.sinks.postgres.options import read_options
from laminar_dagster.sinks.postgres.table import Target, fit, identifier
from laminar_dagster.sinks.postgres.writing import RowWriter
from laminar_dagster.sinks.reporting import reported
from laminar_dagster.sinks.staged import staged_tables
from laminar_dagster.sinks.staged_values import check_values

_CHECK_CONSTRAINTS: Final = sql.SQL("SET CONSTRAINTS ALL IMMEDIATE")


class PostgresSink:
    """Appends or upserts rows into one table; see ``columns`` for how types are mapped.

    An epoch is one transaction that also updates the sink's row in the table ``_laminar_ledger``
    of the same schema, so rows and ledger change atomically. That row is locked before it is read,
    so committers of one sink queue. Every call opens and closes its own connection; threads may
    share a sink.
    """

    def __init__(
        self,
        sink_id: SinkId,
        pipeline: PipelineName,
        server: Server,
        table: str,
        *,
        schema: str = "public",
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        create: bool = True,
        renamed: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Describe the sink. Nothing is opened.

        Args:
            sink_id: The sink's name within the pipeline.
            pipeline: The pipeline's name, part of the ledger row's key.
            server: The server and database.
            table: The table in the database.
            schema: The schema of the table and of its ledger.
            mode: Whether rows are appended, or replace the rows with the same key.
            key: The columns of the view that identify a row in upsert mode.
            create: Whether to create the table, and to add columns that the view gains.
            renamed: Names of the table's columns by those of the view, where they differ.
            limits: Time-outs.

        Raises:
            InvalidConfig: Mode and key contradict each other, or the table cannot be written.
            InvalidName: PostgreSQL does not allow one of the names.
        """
        where = f"sink {sink_id}"
        if problem := problem_with_key(mode, key):
            raise InvalidConfig(where, *problem)
        renamed = dict(renamed or {})
        for name in (schema, table, *renamed.values()):
            identifier(name)
        if table == LEDGER_TABLE:
            raise InvalidConfig(where, f"the table name `{table}` is reserved", "choose another")
        if schema in ("pg_catalog", "information_schema") or schema.startswith("pg_temp"):
            raise InvalidConfig(where, f"the schema `{schema}` is the server's own", "")
        self._sink_id = sink_id
        self._application = f"laminar {pipeline}/{sink_id}"
        self._server = server
        self._target = Target(table, key, create, renamed, schema)
        self._ledger = Ledger(schema, pipeline, sink_id)
        self._limits = limits or Limits()

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> PostgresSink:
        """Build the sink that a ``CREATE SINK`` describes.

        Options: ``host``, ``port``, ``database``, ``user``, or all of them as ``dsn``;
        ``password``; ``sslmode``, ``sslrootcert``, ``sslcert``, ``sslkey``, ``sslpassword``;
        ``schema``, ``table`` (the sink's own name by default), ``column.NAME``, ``mode``, ``key``,
        ``create``; ``connect_timeout``, ``lock_timeout``, ``statement_timeout``,
        ``idle_timeout``, ``commit_timeout``, ``abort_timeout``.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        options = read_options(table, project)
        with told_at(table.place):
            return cls(
                table.sink_id,
                pipeline,
                options.server,
                options.table,
                schema=options.schema,
                mode=options.mode,
                key=options.key,
                create=options.create,
                renamed=options.renamed,
                limits=options.limits,
            )

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The server, the database and the table."""
        server, target = self._server, self._target
        place = "/".join(quote(part, "") for part in (server.database, target.schema, target.table))
        return f"postgresql://{quote(server.host, ',[]:')}:{server.port}/{place}"

    @property
    def targets(self) -> frozenset[str]:
        """The table's address, once for each host of the server."""
        server, target = self._server, self._target
        place = f"{server.database}/{target.schema}/{target.table}"
        hosts, ports = server.host.split(","), server.port.split(",")
        ports *= len(hosts) if len(ports) == 1 else 1
        return frozenset(
            f"postgresql://{same_spelling(host, port.strip())}/{place}"
            for host, port in zip(hosts, ports, strict=False)
        )

    def __repr__(self) -> str:
        """The sink and its table."""
        return f"PostgresSink({self._sink_id!r}, {self.address!r})"

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``. Creates no table."""
        with self._connected() as connection, self._reading(connection):
            return self._ledger.read(connection)[0]

    def published(self) -> Published | None:
        """See ``Attesting.published``."""
        with self._connected() as connection, self._reading(connection):
            return self._ledger.read_output(connection)

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """See ``Sink.check``."""
        try:
            with self._connected() as connection, self._reading(connection):
                self._check_table_is_kept(connection, self._ledger.read(connection)[1])
                if not self._ledger.exists(connection):
                    self._check_ledger_can_be_made(connection)
                found = fit(connection, self._target, schema)
            if staged is not None:
                check_values(staged, found.columns, self._target.key)
        except (Unwritable, InvalidName) as problem:
            where = f"sink {self._sink_id}"
            raise InvalidConfig(where, f"{self._server.shown}: {problem}") from problem

    def held_keys(self, schema: pa.Schema, keys: pa.Table) -> HeldKeys:
        """See ``Searchable.held_keys``. Temporary tables for the search are rolled back."""
        try:
            with (
                self._connected() as connection,
                self._reading(connection, read_only=False),
            ):
                if not has_table(connection, self._target.schema, self._target.table):
                    return NONE_HELD
                return RowWriter(connection, self._target, schema).held_keys(keys)
        except (Unwritable, InvalidName) as problem:
            where = f"sink {self._sink_id}"
            raise InvalidConfig(where, f"{self._server.shown}: {problem}") from problem

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Create the ledger table, if this is the first sink of the schema.
        2. Lock the sink's row in it, before it is read.
        3. Read it, and decide.
        4. Look at the table, and create it if need be.
        5. Write the rows.
        6. Move the ledger.
        7. Commit the transaction.

        A process that dies before 7 has changed nothing: the server rolls back. One that is
        suspended is rolled back after a time-out, and finds its connection closed.
        """
        with self._reported(epoch), self._connected() as connection:
            # Step 1.
            if not self._ledger.exists(connection):
                self._check_ledger_can_be_made(connection)
                self._ledger.make(connection, self._limits)
            try:
                with transaction(connection, self._limits):
                    self._publish(connection, epoch, staged)
            except psycopg.errors.LockNotAvailable as error:
                if end_stuck_sessions(connection, self._limits):
                    error.add_note("a session of this sink that stood still was ended; try again")
                raise

    # --- the transaction --------------------------------------------------------------------------

    def _publish(self, connection: Connection, epoch: EpochNumber, staged: StagedOutput) -> None:
        # Steps 2 and 3.
        ledger, written_to = self._ledger.lock(connection)
        if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
            return
        staged.progress.begun()
        self._check_table_is_kept(connection, written_to)
        # Steps 4 and 5.
        has_columns = self._write(connection, staged_tables(staged), staged.progress)
        # Check deferred constraints here, so that a violation is not an error of the COMMIT.
        connection.execute(_CHECK_CONSTRAINTS)
        # Step 6.
        name = self._target.table if has_columns else None
        self._ledger.move(connection, epoch, name, staged.entry.output_sha256)
        # Step 7.
        staged.progress.committing()
        self._send_commit(connection, epoch)

    def _check_ledger_can_be_made(self, connection: Connection) -> None:
        schema = self._target.schema
        if not may_create(connection, schema):
            raise Unwritable(
                f"there is no table `{LEDGER_TABLE}` in schema `{schema}`, and this role may not"
                " make it; make it, or GRANT CREATE ON SCHEMA"
            )

    def _check_table_is_kept(self, connection: Connection, written_to: str | None) -> None:
        target = self._target
        require_kept(
            written_to,
            lambda name: name == target.table,
            lambda name: has_table(connection, target.schema, name),
        )

    def _write(
        self, connection: Connection, tables: Iterable[pa.Table], progress: TransactionProgress
    ) -> bool:
        """Write all rows, a portion at a time and in their order.

        Returns:
            Whether there were columns; an epoch may have no files at all.
        """
        writer = None
        for rows in portions(tables):
            writer = writer or RowWriter(connection, self._target, rows.schema)
            writer.write(rows)
            progress.wrote(rows.num_rows)
        return writer is not None

    def _send_commit(self, connection: Connection, epoch: EpochNumber) -> None:
        try:
            with hung_up_after(connection.fileno(), self._limits.commit):
                answer = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            if errors.is_rolled_back(error):
                raise
            reason = describe(error, self._server)
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from error
        if answer != "COMMIT":
            # To a COMMIT of a failed transaction the server answers ROLLBACK.
            reason = f"{self._server.shown}: the server answered {answer} to COMMIT"
            raise WriteFailed(self._sink_id, epoch, reason)

    # --- connections and errors -------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            connection = self._server.connect(self._application)
        except psycopg.Error as error:
            raise errors.while_connecting(error, self._sink_id, self._server) from None
        with closing(connection):
            yield connection

    @contextmanager
    def _reading(self, connection: Connection, *, read_only: bool = True) -> Iterator[None]:
        try:
            with transaction(connection, self._limits, read_only=read_only):
                yield
        except psycopg.Error as error:
            raise errors.while_reading(error, self._sink_id, self._server) from error

    def _reported(self, epoch: EpochNumber) -> AbstractContextManager[None]:
        return reported(
            self._sink_id,
            epoch,
            psycopg.Error,
            lambda error: errors.before_commit(error, self._sink_id, epoch, self._server),
        )

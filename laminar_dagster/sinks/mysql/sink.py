"""A table in a MySQL or MariaDB database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pymysql

from laminar_dagster.clients.hosts import same_spelling
from laminar_dagster.clients.mysql.identifiers import identifier
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    InvalidName,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import HeldKeys, Published, StagedOutput
from laminar_dagster.sinks.changes import Mode, Unwritable
from laminar_dagster.sinks.key_counts import NONE_HELD
from laminar_dagster.sinks.ledger import LEDGER_TABLE, Decision, decide, require_kept
from laminar_dagster.sinks.matching import Target
from laminar_dagster.sinks.mysql import errors
from laminar_dagster.sinks.mysql.catalogue import (
    engine_of,
    has_table,
    may_create,
    require_transactions,
)
from laminar_dagster.sinks.mysql.connection import Facts, Limits, prepare
from laminar_dagster.sinks.mysql.ledger import Ledger
from laminar_dagster.sinks.mysql.loading import Loader
from laminar_dagster.sinks.mysql.options import read_options
from laminar_dagster.sinks.mysql.table import check_rights, fit
from laminar_dagster.sinks.mysql.writing import RowWriter, held_keys
from laminar_dagster.sinks.options import problem_with_key, told_at
from laminar_dagster.sinks.portions import portions
from laminar_dagster.sinks.reporting import reported
from laminar_dagster.sinks.staged import staged_tables
from laminar_dagster.sinks.staged_values import check_values


class MysqlSink:
    """Appends or upserts rows into one table; see ``columns`` for how types are mapped.

    An epoch is one transaction that also updates the sink's row in the table ``_laminar_ledger``
    of the same database, so rows and ledger change atomically. That row is locked before it is
    read, so committers of one sink queue. Every call opens and closes its own session; threads may
    share a sink.
    """

    def __init__(
        self,
        sink_id: SinkId,
        pipeline: PipelineName,
        server: Server,
        table: str,
        *,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        create: bool = True,
        renamed: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        bulk: bool = True,
        durable: bool = True,
    ) -> None:
        """Describe the sink. Nothing is opened.

        Args:
            sink_id: The sink's name within the pipeline.
            pipeline: The pipeline's name, part of the ledger row's key.
            server: The server and database.
            table: The table in the database.
            mode: Whether rows are appended, or replace the rows with the same key.
            key: The columns of the view that identify a row in upsert mode.
            create: Whether to create the table, and to add columns that the view gains.
            renamed: Names of the table's columns by those of the view, where they differ.
            limits: Time-outs.
            bulk: Whether to stream rows with ``LOAD DATA LOCAL``, if the server allows it.
            durable: Whether to refuse a server that may lose a commit when it crashes.

        Raises:
            InvalidConfig: Mode and key contradict each other, or the table cannot be written.
            InvalidName: MySQL does not allow one of the names.
        """
        where = f"sink {sink_id}"
        if problem := problem_with_key(mode, key):
            raise InvalidConfig(where, *problem)
        renamed = dict(renamed or {})
        for name in (server.database, table, *renamed.values()):
            identifier(name)
        if table.casefold().startswith("_laminar_"):
            raise InvalidConfig(where, f"the table name `{table}` is reserved", "choose another")
        self._sink_id = sink_id
        self._application = f"laminar {pipeline}/{sink_id}"
        self._server = server
        self._target = Target(table, key, create, renamed)
        self._ledger = Ledger(pipeline, sink_id)
        self._limits = limits or Limits()
        self._bulk = bulk
        self._durable = durable

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> MysqlSink:
        """Build the sink that a ``CREATE SINK`` describes.

        Options: ``host``, ``port``, ``database``, ``user``, ``password``; ``ssl_mode``,
        ``ssl_ca``, ``ssl_cert``, ``ssl_key``, ``ssl_key_password``; ``table`` (the sink's own
        name by default), ``column.NAME``, ``mode``, ``key``, ``create``; ``bulk_load``,
        ``durability``; ``connect_timeout``, ``lock_timeout``, ``statement_timeout``,
        ``idle_timeout``, ``commit_timeout``.

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
                mode=options.mode,
                key=options.key,
                create=options.create,
                renamed=options.renamed,
                limits=options.limits,
                bulk=options.bulk,
                durable=options.durable,
            )

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The server, the database and the table."""
        server = self._server
        place = "/".join(quote(part, "") for part in (server.database, self._target.table))
        return f"mysql://{quote(server.host, '[]:')}:{server.port}/{place}"

    @property
    def targets(self) -> frozenset[str]:
        """The table's address. Its case is kept: only the server knows whether case counts."""
        server = self._server
        place = f"{server.database}/{self._target.table}"
        return frozenset({f"mysql://{same_spelling(server.host, server.port)}/{place}"})

    def __repr__(self) -> str:
        """The sink and its table."""
        return f"MysqlSink({self._sink_id!r}, {self.address!r})"

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``. Creates no table."""
        with self._connected() as (session, _), self._reading():
            return self._ledger.read(session)[0]

    def published(self) -> Published | None:
        """See ``Attesting.published``."""
        with self._connected() as (session, _), self._reading():
            return self._ledger.read_output(session)

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """See ``Sink.check``."""
        try:
            with self._connected() as (session, facts), self._reading():
                self._check_server(facts)
                self._check_table_is_kept(session, self._ledger.read(session)[1])
                self._check_ledger(session)
                found = fit(session, self._target, schema, facts.collation)
                check_rights(session, self._target, found)
            if staged is not None:
                check_values(staged, found.columns, self._target.key)
        except (Unwritable, InvalidName) as problem:
            raise InvalidConfig(f"sink {self._sink_id}", str(problem)) from problem

    def held_keys(self, schema: pa.Schema, keys: pa.Table) -> HeldKeys:
        """See ``Searchable.held_keys``."""
        try:
            with self._connected() as (session, facts), self._reading():
                if not has_table(session, self._target.table):
                    return NONE_HELD
                columns = fit(session, self._target, schema, facts.collation).columns
                loader = Loader(session, facts, bulk=self._bulk)
                return held_keys(session, self._target, columns, keys, loader)
        except (Unwritable, InvalidName) as problem:
            raise InvalidConfig(f"sink {self._sink_id}", str(problem)) from problem

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Read the ledger, and stop if the epoch is not the next one.
        2. Create the ledger table, if this is the first sink of the database.
        3. Look at the table, create it or add columns if need be. MySQL commits implicitly at such
           DDL, so it comes before the transaction; it is idempotent.
        4. Lock the sink's row in the ledger, before it is read.
        5. Read it, and decide.
        6. Write the rows.
        7. Move the ledger.
        8. Commit the transaction.

        A process that dies before 8 has published nothing: the server rolls back. One that is
        suspended is rolled back after the idle time-out, and finds its connection closed.
        """
        with self._reported(epoch), self._connected() as (session, facts):
            self._check_server(facts)
            # Step 1.
            ledger, written_to = self._ledger.read(session)
            if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
                return
            self._check_table_is_kept(session, written_to)
            # Step 2.
            self._ledger.make(session, facts)
            # Step 3.
            rows = portions(staged_tables(staged))
            writer, first = None, next(rows, None)
            if first is not None:
                writer = RowWriter(session, self._target, first.schema, facts, bulk=self._bulk)
            with session.transaction():
                # Steps 4 and 5.
                ledger, written_to = self._ledger.lock(session)
                if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
                    return
                staged.progress.begun()
                self._check_table_is_kept(session, written_to)
                # Step 6.
                if writer is not None:
                    writer.hold()
                    for portion in chain((first,), rows):
                        writer.write(portion)
                        staged.progress.wrote(portion.num_rows)
                # Step 7.
                name = self._target.table if writer is not None else None
                self._ledger.move(session, epoch, name, staged.entry.output_sha256)
                # Step 8.
                staged.progress.committing()
                self._send_commit(session, facts, epoch)

    # --- the transaction --------------------------------------------------------------------------

    def _check_server(self, facts: Facts) -> None:
        facts.check_recent()
        if self._durable:
            facts.check_durable()

    def _check_ledger(self, session: Session) -> None:
        engine = engine_of(session, LEDGER_TABLE)
        if engine is not None:
            require_transactions(LEDGER_TABLE, engine)
        elif not may_create(session, LEDGER_TABLE):
            raise Unwritable(
                f"there is no table `{LEDGER_TABLE}`, and this account may not make it;"
                " make it, or GRANT CREATE ON …"
            )

    def _check_table_is_kept(self, session: Session, written_to: str | None) -> None:
        require_kept(
            written_to,
            lambda name: name == self._target.table,
            lambda name: has_table(session, name),
        )

    def _send_commit(self, session: Session, facts: Facts, epoch: EpochNumber) -> None:
        if facts.is_mariadb:
            # No time-out: a commit that it interrupts would have an unknown outcome.
            session.run("SET SESSION max_statement_time = 0")
        session.limit(self._limits.commit)
        try:
            session.run("COMMIT")
        except pymysql.Error as error:
            if errors.is_rolled_back(error):
                raise
            reason = errors.describe(error, self._server)
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from error

    # --- connections and errors -------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[tuple[Session, Facts]]:
        session = None
        try:
            session = self._server.connect(self._application)
            facts = prepare(session, self._limits)
        except pymysql.Error as error:
            _close(session)
            raise errors.while_connecting(error, self._sink_id, self._server) from None
        try:
            yield session, facts
        finally:
            _close(session)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            raise errors.while_reading(error, self._sink_id, self._server) from error

    def _reported(self, epoch: EpochNumber) -> AbstractContextManager[None]:
        return reported(
            self._sink_id,
            epoch,
            pymysql.Error,
            lambda error: errors.before_commit(error, self._sink_id, epoch, self._server),
        )


def _close(session: Session | None) -> None:
    if session is not None:
        with suppress(pymysql.Error):
            session.close()

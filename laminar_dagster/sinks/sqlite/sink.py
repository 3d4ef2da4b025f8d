"""A table in a SQLite database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final, get_args

import pyarrow as pa

from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    InvalidName,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import HeldKeys, Published, StagedOutput
from laminar_dagster.sinks.changes import Mode, Unwritable, check_columns, split, stored_columns
from laminar_dagster.sinks.durable_folder import make_folder
from laminar_dagster.sinks.key_counts import NONE_HELD, shown
from laminar_dagster.sinks.ledger import (
    LEDGER_TABLE,
    Decision,
    Standing,
    attested,
    decide,
    require_kept,
    standing,
)
from laminar_dagster.sinks.options import SinkOptions, problem_with_key, told_at
from laminar_dagster.sinks.portions import check_count
from laminar_dagster.sinks.reporting import reported
from laminar_dagster.sinks.sqlite import errors
from laminar_dagster.sinks.sqlite.columns import (
    Decimals,
    SqliteColumn,
    check_staged,
    column_for,
    rows_to_bind,
)
from laminar_dagster.sinks.sqlite.identifiers import quote
from laminar_dagster.sinks.sqlite.table import (
    Fit,
    InsertStatement,
    SearchStatement,
    delete_statement,
    fit,
    has_table,
)
from laminar_dagster.sinks.staged import staged_tables, without_views

_BUSY_TIMEOUT: Final = 60.0
_ROWS_PER_BATCH: Final = 8192

_CREATE_LEDGER: Final = f"""
    CREATE TABLE IF NOT EXISTS main.{LEDGER_TABLE} (
        pipeline      TEXT NOT NULL,
        sink          TEXT NOT NULL,
        epoch         INTEGER NOT NULL CHECK (epoch > 0),
        table_name    TEXT,
        output_sha256 TEXT NOT NULL,
        committed_at  TEXT NOT NULL,
        PRIMARY KEY (pipeline, sink)
    ) WITHOUT ROWID
"""
_READ_LEDGER: Final = f"""
    SELECT epoch, table_name FROM main.{LEDGER_TABLE} WHERE pipeline = ? AND sink = ?
"""
_READ_OUTPUT: Final = f"""
    SELECT epoch, output_sha256 FROM main.{LEDGER_TABLE} WHERE pipeline = ? AND sink = ?
"""
_MOVE_LEDGER: Final = f"""
    INSERT INTO main.{LEDGER_TABLE} (pipeline, sink, epoch, table_name, output_sha256, committed_at)
    VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    ON CONFLICT (pipeline, sink) DO UPDATE SET
        epoch = excluded.epoch,
        table_name = coalesce(excluded.table_name, table_name),
        output_sha256 = excluded.output_sha256,
        committed_at = excluded.committed_at
"""


class SqliteSink:
    """Appends or upserts rows into one table; see ``columns`` for how types are mapped.

    An epoch is one transaction that also updates the sink's row in the table ``_laminar_ledger``
    of the same database, so rows and ledger change atomically. Every call opens and closes its own
    connection; threads may share a sink. For a local disk: SQLite's locks do not work on most
    network file systems.

    It uses Python's own SQLite. A second copy of the library in one process (as other Arrow
    drivers bring) would void the first one's POSIX locks whenever it closed the same file.
    """

    def __init__(
        self,
        sink_id: SinkId,
        pipeline: PipelineName,
        path: Path,
        table: str,
        *,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        create: bool = True,
        decimals: Decimals = "number",
        busy_timeout: float = _BUSY_TIMEOUT,
    ) -> None:
        """Describe the sink. Nothing is opened.

        Args:
            sink_id: The sink's name within the pipeline.
            pipeline: The pipeline's name, part of the ledger row's key.
            path: The database file. A relative one is resolved against the current folder, now.
            table: The table in the database.
            mode: Whether rows are appended, or replace the rows with the same key.
            key: The columns that identify a row in upsert mode.
            create: Whether to create the file, the table, and columns that the view gains.
            decimals: Whether decimals are stored as numbers, or as text with all their digits.
            busy_timeout: Seconds to wait for another connection's lock.

        Raises:
            InvalidConfig: Mode and key contradict each other, or the table cannot be written.
            InvalidName: SQLite does not allow one of the names.
        """
        where = f"sink {sink_id}"
        if problem := problem_with_key(mode, key):
            raise InvalidConfig(where, *problem)
        for name in (table, *key):
            quote(name)
        if table.lower().startswith("sqlite_") or table.lower() == LEDGER_TABLE:
            raise InvalidConfig(where, f"the table name `{table}` is reserved", "choose another")
        self._sink_id = sink_id
        self._pipeline = pipeline
        self._path = Path(os.path.abspath(path))
        self._table = table
        self._key = key
        self._create = create
        self._decimals = decimals
        self._busy_timeout = busy_timeout

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> SqliteSink:
        """Build the sink that a ``CREATE SINK`` describes.

        Options: ``path`` (from the project's folder), ``table`` (the sink's own name by default),
        ``mode``, ``key``, ``create``, ``decimals``, ``busy_timeout``.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        options = SinkOptions(table)
        path = options.text("path")
        if "://" in path or path.startswith((":", "file:")):
            options.refuse("`path` must be a file on a local disk", "write a plain path")
        name = options.text("table", str(table.sink_id))
        mode, key = options.mode_and_key()
        create = options.flag("create", True)
        forms: tuple[Decimals, ...] = get_args(Decimals)
        chosen = options.choice("decimals", forms, "number")
        busy_timeout = options.seconds("busy_timeout", _BUSY_TIMEOUT)
        options.finish()
        with told_at(table.place):
            return cls(
                table.sink_id,
                pipeline,
                project / path,
                name,
                mode=mode,
                key=key,
                create=create,
                decimals=next(each for each in forms if each == chosen),
                busy_timeout=busy_timeout,
            )

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The database's file, and the table."""
        return f"sqlite://{self._path}/{self._table}"

    @property
    def targets(self) -> frozenset[str]:
        """The file with links resolved, and the table in lower case: its name ignores case."""
        # SQLite folds only ASCII letters.
        table = self._table.encode().lower().decode()
        return frozenset({f"sqlite://{os.path.realpath(self._path)}/{table}"})

    def __repr__(self) -> str:
        """The sink, its file and its table."""
        return f"SqliteSink({self._sink_id!r}, {str(self._path)!r}, {self._table!r})"

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``. Creates no file and no table."""
        with self._reading() as connection:
            return self._read_ledger(connection)[0] if connection else None

    def published(self) -> Published | None:
        """See ``Attesting.published``."""
        with self._reading() as connection:
            if connection is None or not has_table(connection, LEDGER_TABLE):
                return None
            row = connection.execute(_READ_OUTPUT, self._row).fetchone()
            return attested(row)

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """See ``Sink.check``. Creates no file and no table."""
        where = f"sink {self._sink_id}"
        try:
            with self._reading() as found, closing(sqlite3.connect(":memory:")) as empty:
                if found:
                    self._check_table_is_kept(found, self._read_ledger(found)[1])
                elif not self._create:
                    raise Unwritable("there is no such file; make it, or set create = 'true'")
                columns, _ = self._fit(found or empty, schema)
            if staged is not None:
                check_staged(staged, columns, self._key)
        except (Unwritable, InvalidName) as problem:
            raise InvalidConfig(where, f"{self._path}: {problem}") from problem

    def held_keys(self, schema: pa.Schema, keys: pa.Table) -> HeldKeys:
        """See ``Searchable.held_keys``."""
        keys = without_views(keys)
        with self._reading() as connection:
            if connection is None or not has_table(connection, self._table):
                return NONE_HELD
            try:
                columns, _ = self._fit(connection, schema)
            except (Unwritable, InvalidName) as problem:
                where = f"sink {self._sink_id}"
                raise InvalidConfig(where, f"{self._path}: {problem}") from problem
            of_key = _of_key(columns, self._key)
            batches = keys.select(self._key).to_batches(max_chunksize=_ROWS_PER_BATCH)
            rows = chain.from_iterable(rows_to_bind(of_key, batch, self._key) for batch in batches)
            places = [*self._places_held(connection, rows)]
        return shown(keys.take(pa.array(places, pa.int64())), self._key)

    def _places_held(
        self, connection: sqlite3.Connection, keys: Iterable[tuple[object, ...]]
    ) -> Iterator[int]:
        """The indexes of the keys of which the table has a row."""
        search = SearchStatement(self._table, self._key)
        numbered = ((place, *key) for place, key in enumerate(keys))
        at_once = search.keys_at_once(connection)
        while some := [*islice(numbered, at_once)]:
            values = [*chain.from_iterable(some)]
            yield from (place for (place,) in connection.execute(search.sql(len(some)), values))

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Take the write lock, before the ledger is read.
        2. Read the ledger, and decide.
        3. Look at the table, and create it if need be.
        4. Write the rows.
        5. Move the ledger.
        6. Commit the transaction.

        A process that dies before 6 has changed nothing: SQLite discards uncommitted changes.
        """
        with (
            self._reported(epoch),
            closing(self._connect_for_writing()) as connection,
            # Step 1.
            _transaction(connection),
        ):
            # Step 2.
            ledger, written_to = self._read_ledger(connection)
            if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
                return
            staged.progress.begun()
            self._check_table_is_kept(connection, written_to)
            # Steps 3 and 4.
            columns: tuple[SqliteColumn, ...] = ()
            for table in staged_tables(staged):
                if not columns:
                    columns, fitted = self._fit(connection, table.schema)
                    for statement in fitted.statements:
                        connection.execute(statement)
                    names = tuple(column.name for column in columns)
                    insert = InsertStatement(self._table, names, self._key, fitted.has_triggers)
                self._write(connection, columns, insert, table)
                staged.progress.wrote(table.num_rows)
            # Step 5.
            connection.execute(_CREATE_LEDGER)
            name = self._table if columns else None
            sha256 = staged.entry.output_sha256
            connection.execute(_MOVE_LEDGER, (*self._row, int(epoch), name, sha256))
            # Step 6.
            staged.progress.committing()
            self._send_commit(connection, epoch)

    # --- the transaction --------------------------------------------------------------------------

    @property
    def _row(self) -> tuple[str, str]:
        """The key of the sink's row in the ledger."""
        return str(self._pipeline), str(self._sink_id)

    def _read_ledger(self, connection: sqlite3.Connection) -> Standing:
        """The last epoch, and the table that holds it if any epoch had rows."""
        if not has_table(connection, LEDGER_TABLE):
            return None, None
        return standing(connection.execute(_READ_LEDGER, self._row).fetchone())

    def _check_table_is_kept(self, connection: sqlite3.Connection, written_to: str | None) -> None:
        require_kept(
            written_to,
            lambda name: name.lower() == self._table.lower(),
            lambda name: has_table(connection, name),
        )

    def _fit(
        self, connection: sqlite3.Connection, schema: pa.Schema
    ) -> tuple[tuple[SqliteColumn, ...], Fit]:
        """How the columns are stored, and the statements that the table needs first."""
        check_columns(schema, self._key)
        columns = tuple(column_for(field, self._decimals) for field in stored_columns(schema))
        found = fit(connection, self._table, columns, self._key, create=self._create)
        held = tuple(
            column.without_nulls() if column.name in found.row_numbers else column
            for column in columns
        )
        return held, found

    def _write(
        self,
        connection: sqlite3.Connection,
        columns: tuple[SqliteColumn, ...],
        insert: InsertStatement,
        table: pa.Table,
    ) -> None:
        changes = split(table, self._key)
        if changes.deleted is not None:
            for batch in changes.deleted.to_batches(max_chunksize=_ROWS_PER_BATCH):
                self._delete(connection, [*rows_to_bind(_of_key(columns, self._key), batch)])
        at_once = insert.rows_at_once(connection)
        many = insert.sql(at_once)
        for batch in changes.rows.to_batches(max_chunksize=_ROWS_PER_BATCH):
            values = chain.from_iterable(rows_to_bind(columns, batch, self._key))
            size = at_once * len(columns)
            whole = batch.num_rows // at_once
            taken = 0
            if whole:
                chunks = (tuple(islice(values, size)) for _ in range(whole))
                taken += connection.executemany(many, chunks).rowcount
            if rest := batch.num_rows % at_once:
                taken += connection.execute(insert.sql(rest), tuple(values)).rowcount
            check_count(taken, batch.num_rows)

    def _delete(self, connection: sqlite3.Connection, keys: list[tuple[object, ...]]) -> None:
        gone = connection.executemany(delete_statement(self._table, self._key), keys).rowcount
        if gone == len(keys):
            return
        # Fewer deletes than keys are fine if a row was inserted and retracted within the epoch. But
        # a row that still exists was kept by a trigger.
        kept = sum(1 for _ in self._places_held(connection, keys))
        if kept:
            raise Unwritable(
                f"the table keeps {kept} of {len(keys)} rows that were deleted; a trigger keeps"
                " them"
            )

    def _send_commit(self, connection: sqlite3.Connection, epoch: EpochNumber) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if errors.is_busy(error):
                # A reader's lock blocked the commit before it began: nothing is published.
                raise
            # The commit record may have reached the file although the flush after it failed.
            reason = errors.describe(error, self._path)
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from error

    # --- connections and errors -------------------------------------------------------------------

    def _connect(self, mode: str) -> sqlite3.Connection:
        # isolation_level=None: only explicit BEGIN statements start transactions.
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout,
            isolation_level=None,
        )

    def _connect_for_writing(self) -> sqlite3.Connection:
        if self._create:
            try:
                make_folder(self._path.parent)
            except OSError as error:
                raise errors.of_system(error, self._sink_id, self._path.parent) from error
        connection = self._connect("rwc" if self._create else "rw")
        try:
            self._make_durable(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_for_reading(self) -> sqlite3.Connection:
        connection = self._connect("ro")
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if not errors.is_left_halfway(error):
                raise
            # A dead writer's journal: a writable connection rolls it back on its first access.
            connection = self._connect("rw")
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_durable(self, connection: sqlite3.Connection) -> None:
        try:
            # With a write-ahead log, readers and the writer do not block each other, and readers
            # see the epoch before until the new one is committed.
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            # Another connection uses the database or switches its mode. Other modes are as safe.
            if not errors.is_busy(error):
                raise
        # Flush before the commit returns: with NORMAL, which is common with a write-ahead log, a
        # power failure could lose an epoch that a checkpoint already relies on. EXTRA is like FULL,
        # and without a write-ahead log it also flushes the folder.
        connection.execute("PRAGMA synchronous = EXTRA")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A read-only connection; None if there is no file."""
        try:
            if not self._path.exists():
                yield None
                return
            with closing(self._connect_for_reading()) as connection:
                yield connection
        except sqlite3.Error as error:
            raise errors.while_reading(error, self._sink_id, self._path) from error
        except OSError as error:
            raise errors.of_system(error, self._sink_id, self._path) from error

    def _reported(self, epoch: EpochNumber) -> AbstractContextManager[None]:
        return reported(
            self._sink_id,
            epoch,
            sqlite3.Error,
            lambda error: errors.before_commit(error, self._sink_id, epoch, self._path),
        )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction with the write lock; rolled back unless committed inside."""
    # A deferred transaction would let two committers read the same ledger.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        # Explicit, because a statement that a traceback keeps alive would keep the lock past close.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def _of_key(columns: tuple[SqliteColumn, ...], key: tuple[str, ...]) -> list[SqliteColumn]:
    return [next(each for each in columns if each.name == name) for name in key]

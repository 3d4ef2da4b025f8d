"""A table in a DuckDB database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    LaminarError,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import HeldKeys, Published, StagedOutput
from laminar_dagster.sinks.changes import (
    Mode,
    Unwritable,
    check_columns,
    check_rows,
    split,
    stored_columns,
)
from laminar_dagster.sinks.key_counts import NONE_HELD, shown
from laminar_dagster.sinks.ledger import LEDGER_TABLE, Decision, attested, decide
from laminar_dagster.sinks.options import SinkOptions, problem_with_key, told_at
from laminar_dagster.sinks.reporting import reported
from laminar_dagster.sinks.staged import staged_tables, without_views
from laminar_duckdb.database import PATIENCE, columns_of, connected, has_table, is_taken, quote

_CREATE_LEDGER: Final = f"""
    CREATE TABLE IF NOT EXISTS {LEDGER_TABLE} (
        pipeline TEXT, sink TEXT, epoch BIGINT, output_sha256 TEXT, PRIMARY KEY (pipeline, sink)
    )
"""
_READ_LEDGER: Final = f"""
    SELECT epoch, output_sha256 FROM {LEDGER_TABLE} WHERE pipeline = ? AND sink = ?
"""
_BEGIN_LEDGER: Final = f"INSERT INTO {LEDGER_TABLE} VALUES (?, ?, ?, ?)"
_MOVE_LEDGER: Final = f"""
    UPDATE {LEDGER_TABLE} SET epoch = ?, output_sha256 = ? WHERE pipeline = ? AND sink = ?
"""
# DuckDB's name for the Arrow table at hand.
_ROWS: Final = "_laminar_rows"


class DuckdbSink:
    """Appends or upserts rows into one table.

    An epoch is one transaction, which also moves the sink's row of the table ``_laminar_ledger``
    in the same database. No call leaves a connection, and so a transaction, behind. Two committers
    in one process conflict on the row of the ledger; two processes wait for the file.
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
        patience: float = PATIENCE,
    ) -> None:
        """Describe the sink. Nothing is opened.

        Raises:
            InvalidConfig: Mode and key contradict each other, or the table is the ledger.
        """
        if problem := problem_with_key(mode, key):
            raise InvalidConfig(f"sink {sink_id}", *problem)
        if table.lower() == LEDGER_TABLE:
            problem = (f"the table name `{table}` is reserved", "choose another")
            raise InvalidConfig(f"sink {sink_id}", *problem)
        self._sink_id = sink_id
        self._row = (str(pipeline), str(sink_id))
        self._path = Path(os.path.abspath(path))
        self._table = table
        self._key = key
        self._patience = patience

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> DuckdbSink:
        """Build the sink that a ``CREATE SINK`` describes.

        Options: ``path``, ``table`` (the sink's own name by default), ``mode``, ``key``,
        ``lock_timeout``.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        options = SinkOptions(table)
        path = options.text("path")
        name = options.text("table", str(table.sink_id))
        mode, key = options.mode_and_key()
        patience = options.seconds("lock_timeout", PATIENCE)
        options.finish()
        with told_at(table.place):
            return cls(
                table.sink_id,
                pipeline,
                project / path,
                name,
                mode=mode,
                key=key,
                patience=patience,
            )

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The database's file, and the table: as a source of the same table calls it."""
        return f"duckdb://{self._path}/{self._table}"

    @property
    def targets(self) -> frozenset[str]:
        """The file with links resolved, and the table in lower case: its name ignores case."""
        return frozenset({f"duckdb://{os.path.realpath(self._path)}/{self._table.lower()}"})

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``. Creates no file and no table."""
        found = self.published()
        return found.epoch if found else None

    def published(self) -> Published | None:
        """See ``Attesting.published``."""
        with self._reading() as connection:
            return self._read_ledger(connection) if connection else None

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """See ``Sink.check``. Creates no file and no table."""
        try:
            self._require_columns(schema)
            with self._reading() as connection:
                if connection and has_table(connection, self._table):
                    self._require_fit(connection, schema.empty_table())
            if staged is not None:
                for table in staged_tables(staged):
                    check_rows(table, self._key)
        except Unwritable as problem:
            where = f"sink {self._sink_id}"
            raise InvalidConfig(where, f"{self._path}: {problem}") from problem

    def held_keys(self, schema: pa.Schema, keys: pa.Table) -> HeldKeys:
        """See ``Searchable.held_keys``."""
        keys = without_views(keys)
        with self._reading() as connection:
            if connection is None or not has_table(connection, self._table):
                return NONE_HELD
            self.check(schema)
            connection.register(_ROWS, keys.append_column("_place", pa.arange(0, keys.num_rows)))
            names = ", ".join(map(quote, self._key))
            found = connection.execute(
                f"SELECT _place FROM {_ROWS} SEMI JOIN {quote(self._table)} USING ({names})"
            ).fetchall()
        places = pa.array(sorted(place for (place,) in found), pa.int64())
        return shown(keys.take(places), self._key)

    def repeated_keys(self) -> HeldKeys:
        """See ``Unconstrained.repeated_keys``: the table has no constraint."""
        with self._reading() as connection:
            if not self._key or connection is None or not has_table(connection, self._table):
                return NONE_HELD
            names = ", ".join(map(quote, self._key))
            query = f"SELECT {names} FROM {quote(self._table)} GROUP BY {names} HAVING count(*) > 1"
            return shown(connection.execute(query).to_arrow_table(), self._key)

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Begin a transaction; read the ledger, and decide.
        2. Move the ledger: another committer of this process conflicts here, and fails.
        3. Create the table if need be, and write the rows, file by file.
        4. Commit the transaction.

        A process that dies before 4 has changed nothing: DuckDB drops what was not committed.
        """
        with reported(
            self._sink_id, epoch, duckdb.Error, lambda error: self._before_commit(error, epoch)
        ):
            self._make_folder()
            with connected(self._path, self._patience) as connection, _transaction(connection):
                # Step 1.
                held = self._read_ledger(connection)
                ledger = held.epoch if held else None
                if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
                    return
                staged.progress.begun()
                # Step 2.
                self._move_ledger(connection, epoch, staged.entry.output_sha256, held)
                # Step 3.
                for table in staged_tables(staged):
                    self._write(connection, table)
                    staged.progress.wrote(table.num_rows)
                # Step 4.
                staged.progress.committing()
                self._send_commit(connection, epoch)

    # --- the transaction --------------------------------------------------------------------------

    def _read_ledger(self, connection: duckdb.DuckDBPyConnection) -> Published | None:
        if not has_table(connection, LEDGER_TABLE):
            return None
        return attested(connection.execute(_READ_LEDGER, self._row).fetchone())

    def _move_ledger(
        self,
        connection: duckdb.DuckDBPyConnection,
        epoch: EpochNumber,
        sha256: str,
        held: Published | None,
    ) -> None:
        if held is None:
            connection.execute(_CREATE_LEDGER)
            connection.execute(_BEGIN_LEDGER, [*self._row, int(epoch), sha256])
        else:
            connection.execute(_MOVE_LEDGER, [int(epoch), sha256, *self._row])

    def _write(self, connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
        self._require_columns(table.schema)
        stored = table.select([field.name for field in stored_columns(table.schema)])
        if has_table(connection, self._table):
            self._require_fit(connection, table)
        else:
            connection.register(_ROWS, stored.schema.empty_table())
            connection.execute(f"CREATE TABLE {quote(self._table)} AS FROM {_ROWS}")
        changes = split(table, self._key, one_row_per_key=bool(self._key))
        gone = [changes.rows.select(self._key)] if self._key else []
        gone += [changes.deleted] if changes.deleted is not None else []
        for keys in gone:
            connection.register(_ROWS, keys)
            same = " AND ".join(f"t.{quote(name)} = r.{quote(name)}" for name in self._key)
            connection.execute(f"DELETE FROM {quote(self._table)} t USING {_ROWS} r WHERE {same}")
        connection.register(_ROWS, changes.rows)
        connection.execute(f"INSERT INTO {quote(self._table)} BY NAME FROM {_ROWS}")

    def _require_columns(self, schema: pa.Schema) -> None:
        check_columns(schema, self._key)
        for name in self._key:
            # To DuckDB, thirty days are a month.
            if pa.types.is_duration(schema.field(name).type):
                raise Unwritable(f"key column `{name}` is an interval, which does not compare well")

    def _require_fit(self, connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
        stored = [field.name for field in stored_columns(table.schema)]
        connection.register(_ROWS, table.select(stored).schema.empty_table())
        wanted = columns_of(connection, f"FROM {_ROWS}")
        found = columns_of(connection, f"FROM {quote(self._table)}")
        if wanted != found:
            differing = sorted(dict(wanted.items() ^ found.items()))
            raise Unwritable(
                f"the table `{self._table}` has other columns than the view:"
                f" {', '.join(f'`{name}`' for name in differing)}"
            )

    def _send_commit(self, connection: duckdb.DuckDBPyConnection, epoch: EpochNumber) -> None:
        try:
            connection.execute("COMMIT")
        except duckdb.TransactionException:
            # A conflict, found before anything was written.
            raise
        except duckdb.Error as error:
            # The commit may have reached the file although the flush after it failed.
            raise CommitOutcomeUnknown(self._sink_id, epoch, str(error)) from error

    # --- connections and errors -------------------------------------------------------------------

    def _make_folder(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SinkUnavailable(self._sink_id, str(error)) from error

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """A connection; None if there is no file."""
        if not self._path.exists():
            yield None
            return
        try:
            # Not read-only: this process may have the file open for a commit at the same time.
            with connected(self._path, self._patience) as connection:
                yield connection
        except duckdb.Error as error:
            raise SinkUnavailable(self._sink_id, str(error)) from error

    def _before_commit(self, error: duckdb.Error, epoch: EpochNumber) -> LaminarError:
        if isinstance(error, duckdb.TransactionException) or is_taken(error):
            return SinkUnavailable(self._sink_id, str(error))
        return WriteFailed(self._sink_id, epoch, str(error))


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """A transaction, rolled back unless committed inside."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        # After a commit, or a conflict that ended it, there is none.
        with suppress(duckdb.TransactionException):
            connection.execute("ROLLBACK")

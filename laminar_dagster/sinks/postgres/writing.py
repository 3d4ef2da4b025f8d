"""Write rows to the table: append them with ``COPY``, or stage them and upsert by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.ports import HeldKeys
from laminar_dagster.sinks.changes import Changes, split
from laminar_dagster.sinks.key_counts import found_by_search
from laminar_dagster.sinks.portions import check_count
from laminar_dagster.sinks.postgres.columns import PostgresColumn
from laminar_dagster.sinks.postgres.copying import copy_rows
from laminar_dagster.sinks.postgres.table import Target, fit

_COPY: Final = sql.SQL("COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)")


class RowWriter:
    """Writes the rows of an epoch, in their order, inside its transaction."""

    def __init__(self, connection: Connection, target: Target, schema: pa.Schema) -> None:
        """Match the columns with the table; create it or add columns if that is allowed.

        Raises:
            Unwritable: The table cannot hold the columns; says why.
            InvalidName: PostgreSQL does not allow a column's name.
        """
        found = fit(connection, target, schema)
        self._connection = connection
        self._key = target.key
        self._columns = found.columns
        self._statements = Statements(target, found.columns)
        for statement in found.statements:
            connection.execute(statement)
        if target.key:
            for statement in self._statements.prepare():
                connection.execute(statement)

    def write(self, rows: pa.Table) -> None:
        """Write rows, after those of earlier calls.

        Raises:
            Unwritable: A value, a key or a weight does not fit.
        """
        changes = split(rows, self._key, one_row_per_key=bool(self._key))
        if self._key:
            self._put(changes)
        else:
            copy_rows(self._connection, self._statements.copy(), self._columns, changes.rows)

    def held_keys(self, keys: pa.Table) -> HeldKeys:
        """The keys of which the table has a row."""
        statements, execute = self._statements, self._connection.execute
        stage = statements.stage_keys()
        copy_rows(self._connection, stage, statements.key_columns, keys, self._key)
        return found_by_search(execute(statements.search()).fetchone(), self._key)

    def _put(self, changes: Changes) -> None:
        """Upsert and delete, in either order: no key is in both, and each occurs once."""
        statements, execute = self._statements, self._connection.execute
        if changes.deleted is not None and changes.deleted.num_rows:
            stage = statements.stage_keys()
            copy_rows(self._connection, stage, statements.key_columns, changes.deleted, self._key)
            execute(statements.delete())
        if changes.rows.num_rows:
            copy_rows(self._connection, statements.stage(), self._columns, changes.rows, self._key)
            written = execute(statements.put()).rowcount
            if statements.updates:
                check_count(written, changes.rows.num_rows)
        execute(statements.clear())


class Statements:
    """The SQL statements that write rows. Names are quoted with ``psycopg.sql``."""

    def __init__(self, target: Target, columns: Sequence[PostgresColumn]) -> None:
        """Prepare statements for a table and its columns."""
        self._columns = [sql.Identifier(column.target) for column in columns]
        # In the order of `key`, like the columns of the keys to delete.
        by_name = {column.name: column for column in columns}
        self.key_columns = tuple(by_name[name] for name in target.key)
        self._key = [sql.Identifier(column.target) for column in self.key_columns]
        self._others = [
            sql.Identifier(column.target) for column in columns if column.name not in target.key
        ]
        self._table = target.qualified
        self._staged = sql.Identifier("pg_temp", "_laminar_rows")
        self._deleted = sql.Identifier("pg_temp", "_laminar_keys")

    @property
    def updates(self) -> bool:
        """Whether an upsert updates existing rows: not if all columns are key columns."""
        return bool(self._others)

    def copy(self) -> sql.Composed:
        """Copy rows into the table."""
        return _COPY.format(table=self._table, columns=_listed(self._columns))

    def prepare(self) -> tuple[sql.Composed, ...]:
        """Temporary tables like the table, for rows and for keys, until the transaction ends."""
        make = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        return (
            make.format(self._staged, _listed(self._columns), self._table),
            make.format(self._deleted, _listed(self._key), self._table),
        )

    def stage(self) -> sql.Composed:
        """Copy rows into the temporary table for rows."""
        return _COPY.format(table=self._staged, columns=_listed(self._columns))

    def stage_keys(self) -> sql.Composed:
        """Copy keys into the temporary table for keys."""
        return _COPY.format(table=self._deleted, columns=_listed(self._key))

    def put(self) -> sql.Composed:
        """Upsert the staged rows into the table.

        Columns that the view does not have are left as they are.
        """
        action: sql.Composable = sql.SQL("NOTHING")
        if self._others:
            one = sql.SQL("{0} = excluded.{0}")
            changes = sql.SQL(", ").join(one.format(name) for name in self._others)
            action = sql.SQL("UPDATE SET {}").format(changes)
        return sql.SQL(
            "INSERT INTO {} AS target ({columns}) SELECT {columns} FROM {} ON CONFLICT ({}) DO {}"
        ).format(
            self._table, self._staged, _listed(self._key), action, columns=_listed(self._columns)
        )

    def delete(self) -> sql.Composed:
        """Delete the rows of the staged keys from the table."""
        return sql.SQL("DELETE FROM {} AS target USING {} AS gone WHERE {}").format(
            self._table, self._deleted, self._matches()
        )

    def search(self) -> sql.Composed:
        """Count the staged keys that have a row in the table, and select one of them."""
        names = sql.SQL(", ").join(sql.SQL("gone.{}").format(name) for name in self._key)
        return sql.SQL(
            "SELECT count(*) OVER (), {} FROM {} AS target JOIN {} AS gone ON {} LIMIT 1"
        ).format(names, self._table, self._deleted, self._matches())

    def _matches(self) -> sql.Composed:
        one = sql.SQL("target.{0} = gone.{0}")
        return sql.SQL(" AND ").join(one.format(name) for name in self._key)

    def clear(self) -> sql.Composed:
        """Empty the temporary tables for the next rows."""
        return sql.SQL("TRUNCATE {}, {}").format(self._staged, self._deleted)


def _listed(names: Sequence[sql.Identifier]) -> sql.Composed:
    return sql.SQL(", ").join(names)

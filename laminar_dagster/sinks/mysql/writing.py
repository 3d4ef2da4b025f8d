"""Write rows to the table: append them directly, or stage them and upsert by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pymysql

from laminar_dagster.clients.mysql.errors import code_of
from laminar_dagster.clients.mysql.identifiers import listed, quoted
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.ports import HeldKeys
from laminar_dagster.sinks.changes import Changes, Unwritable, split
from laminar_dagster.sinks.key_counts import found_by_search
from laminar_dagster.sinks.matching import Target
from laminar_dagster.sinks.mysql.columns import MysqlColumn
from laminar_dagster.sinks.mysql.connection import Facts
from laminar_dagster.sinks.mysql.loading import Loader
from laminar_dagster.sinks.mysql.table import STAGED_KEYS, STAGED_ROWS, check_rights, fit

# Another committer created the table, or added the column, a moment before.
_THERE_ALREADY: Final = (1050, 1060)
_ATTEMPTS: Final = 5


class RowWriter:
    """Writes the rows of an epoch, in their order, inside its transaction."""

    def __init__(
        self, session: Session, target: Target, schema: pa.Schema, facts: Facts, *, bulk: bool
    ) -> None:
        """Match the columns with the table; create it or add columns if that is allowed.

        Call it before the transaction, since DDL commits implicitly. A process that dies after it
        leaves an empty table, or empty columns, which the next one uses.

        Raises:
            Unwritable: The table cannot hold the columns; says why.
            InvalidName: MySQL does not allow a column's name.
        """
        self._session = session
        self._target = target
        self._schema = schema
        self._collation = facts.collation
        self._loader = Loader(session, facts, bulk=bulk)
        self._columns = self._prepared()
        self._statements = Statements(target, self._columns)
        self._filled: set[str] = set()
        if target.key:
            for statement in self._statements.prepare():
                session.run(statement)

    def _prepared(self) -> tuple[MysqlColumn, ...]:
        for _ in range(_ATTEMPTS):
            found = fit(self._session, self._target, self._schema, self._collation)
            check_rights(self._session, self._target, found)
            if found.statement is None:
                return found.columns
            try:
                self._session.run(found.statement)
            except pymysql.Error as error:
                if code_of(error) not in _THERE_ALREADY:
                    raise
        raise Unwritable(f"table `{self._target.table}` is changed by others again and again")

    def hold(self) -> None:
        """Lock the table against DDL until the transaction ends, and check it again.

        Raises:
            Unwritable: It was changed meanwhile, so that it cannot hold the columns any more.
        """
        self._session.run(self._statements.hold())
        found = fit(self._session, self._target, self._schema, self._collation)
        assert found.statement is None, "what can be inserted into is there"
        # Use the new match: column lengths that encoders check may have changed.
        self._columns = found.columns
        self._statements = Statements(self._target, self._columns)

    def write(self, rows: pa.Table) -> None:
        """Write rows, after those of earlier calls.

        Raises:
            Unwritable: A value, a key or a weight does not fit.
        """
        key = self._target.key
        changes = split(rows, key, one_row_per_key=bool(key))
        if key:
            self._put(changes)
        else:
            self._loader.send(self._target.table, self._columns, changes.rows)

    def _put(self, changes: Changes) -> None:
        """Upsert and delete, in either order: no key is in both, and each occurs once."""
        statements, key = self._statements, self._target.key
        if changes.deleted is not None and changes.deleted.num_rows:
            self._stage(STAGED_KEYS, statements.key_columns, changes.deleted)
            self._session.run(statements.delete())
        if changes.rows.num_rows:
            self._stage(STAGED_ROWS, self._columns, changes.rows)
            self._loader.run(statements.put(), changes.rows, key)

    def _stage(self, table: str, columns: Sequence[MysqlColumn], rows: pa.Table) -> None:
        """Fill a temporary table, emptied only before reuse: a delete after use would be wasted."""
        if table in self._filled:
            self._session.run(self._statements.clear(table))
        self._filled.add(table)
        self._loader.send(table, columns, rows, self._target.key)


def held_keys(
    session: Session, target: Target, columns: Sequence[MysqlColumn], keys: pa.Table, loader: Loader
) -> HeldKeys:
    """The keys of which the table has a row.

    Raises:
        Unwritable: A key does not fit.
    """
    statements = Statements(target, columns)
    session.run(statements.prepare_keys())
    loader.send(STAGED_KEYS, statements.key_columns, keys, target.key)
    return found_by_search(next(iter(session.run(statements.search()).rows), None), target.key)


class Statements:
    """The SQL statements that write rows."""

    def __init__(self, target: Target, columns: Sequence[MysqlColumn]) -> None:
        """Prepare statements for a table and its columns."""
        self._columns = [column.target for column in columns]
        # In the order of `key`, like the columns of the keys to delete.
        by_name = {column.name: column for column in columns}
        self.key_columns = tuple(by_name[name] for name in target.key)
        self._key = [column.target for column in self.key_columns]
        self._others = [column.target for column in columns if column.name not in target.key]
        self._table = quoted(target.table)

    def hold(self) -> str:
        """Insert no rows, to lock the table against DDL; needs only the INSERT privilege."""
        nothing = ", ".join(["NULL"] * len(self._columns))
        return (
            f"INSERT INTO {self._table} ({listed(self._columns)})"
            f" SELECT {nothing} FROM DUAL WHERE FALSE"
        )

    def prepare(self) -> tuple[str, ...]:
        """Temporary tables like the table, for rows and for keys, until the session ends."""
        return self._like_table(STAGED_ROWS, self._columns), self.prepare_keys()

    def prepare_keys(self) -> str:
        """The temporary table for keys."""
        return self._like_table(STAGED_KEYS, self._key)

    def _like_table(self, name: str, columns: list[str]) -> str:
        return (
            f"CREATE TEMPORARY TABLE {quoted(name)} ENGINE = InnoDB"
            f" SELECT {listed(columns)} FROM {self._table} WHERE FALSE"
        )

    def put(self) -> str:
        """Upsert the staged rows into the table.

        Columns that the view does not have are left as they are.
        """
        # If all columns are key columns, update a key column to itself: the syntax wants one.
        source = "staged" if self._others else self._table
        changes = ", ".join(
            f"{self._table}.{quoted(name)} = {source}.{quoted(name)}"
            for name in self._others or self._key[:1]
        )
        columns = ", ".join(f"staged.{quoted(name)}" for name in self._columns)
        return (
            f"INSERT INTO {self._table} ({listed(self._columns)})"
            f" SELECT {columns} FROM {quoted(STAGED_ROWS)} AS staged"
            f" ON DUPLICATE KEY UPDATE {changes}"
        )

    def delete(self) -> str:
        """Delete the rows of the staged keys from the table."""
        return f"DELETE target FROM {self._staged_keys_in_table()}"

    def search(self) -> str:
        """Count the staged keys that have a row in the table, and select one of them."""
        names = ", ".join(f"gone.{quoted(name)}" for name in self._key)
        return f"SELECT count(*) OVER (), {names} FROM {self._staged_keys_in_table()} LIMIT 1"

    def _staged_keys_in_table(self) -> str:
        matches = " AND ".join(f"target.{quoted(name)} = gone.{quoted(name)}" for name in self._key)
        return f"{self._table} AS target JOIN {quoted(STAGED_KEYS)} AS gone ON {matches}"

    def clear(self, table: str) -> str:
        """Empty a temporary table. Not with TRUNCATE, which would commit the transaction."""
        return f"DELETE FROM {quoted(table)}"

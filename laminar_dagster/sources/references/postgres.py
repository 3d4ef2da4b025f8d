"""A PostgreSQL table or query as a reference table, read in one consistent snapshot.

The server cannot tell whether a table has changed: only reading its rows does. So by default it is
read every ten minutes, and not every epoch.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.postgres.options import SERVER_OPTIONS, server_of
from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.config.model import ReferenceTable
from laminar_dagster.core.errors import InvalidConfig, ReferenceUnavailable, SourceUnavailable
from laminar_dagster.core.ids import ReferenceId
from laminar_dagster.core.ports import ReferenceFreshness, ReferenceRows
from laminar_dagster.sources.changes.server_options import ServerOptions
from laminar_dagster.sources.option_values import Known, Mistakes, duration, read_values
from laminar_dagster.sources.postgres.copy_out import copy_out
from laminar_dagster.sources.postgres.copying import parsed_texts
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.postgres.values import converted, suits, type_name
from laminar_dagster.sources.references.content import TableShape
from laminar_dagster.sources.references.options import MAX_BYTES, SHARED, freshness_of

_OWN: Final[Known] = {
    "table": ("table", str),
    "query": ("query", str),
    "statement_timeout": ("statement_timeout", duration),
    **SHARED,
}
_REFRESH: Final = timedelta(minutes=10)
_STATEMENT: Final = timedelta(minutes=30)
_NAME: Final = re.compile(r"[^.]{1,63}(?:\.[^.]{1,63})?")
_BEGIN: Final = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_LOOK: Final = sql.SQL("SELECT * FROM {rows} AS reference LIMIT 0")
# FORCE_QUOTE tells an empty text from a null.
_COPY: Final = sql.SQL(
    "COPY (SELECT {columns} FROM {rows} AS reference) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
)


class PostgresReference:
    """Implements ``core.ports.Reference``. It has no version: only its rows show a change."""

    def __init__(
        self,
        shape: TableShape,
        database: Database,
        rows: sql.Composable,
        address: str,
        freshness: ReferenceFreshness,
    ) -> None:
        """Describe the table; does no I/O.

        Args:
            shape: The declaration.
            database: The database that has the table.
            rows: The table, or the query in parentheses.
            address: See ``Reference.address``.
            freshness: How old a copy may be.
        """
        self._shape = shape
        self._database = database
        self._rows = rows
        self._address = address
        self._freshness = freshness

    @classmethod
    def from_table(cls, table: ReferenceTable, project: Path) -> PostgresReference:
        """Build the reference of a ``CREATE REFERENCE TABLE … WITH (connector = 'postgres', …)``.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        mistakes = Mistakes(str(table.place))
        values = read_values(table.options, _OWN, mistakes, SERVER_OPTIONS)
        server = server_of(ServerOptions(table.options, mistakes), project)
        name, query = values.get("table", ""), values.get("query", "").strip().rstrip(";")
        if bool(name) == bool(query):
            hint = "for example table = 'public.products'"
            mistakes.add("one of `table` and `query` is needed, and only one", hint)
        elif name and not _NAME.fullmatch(name):
            mistakes.add(f"`table` is {name!r}, which is no table", "write schema.table")
        mistakes.raise_if_any()
        shape = TableShape.of(table, values.get("max_bytes", MAX_BYTES))
        wait = values.get("statement_timeout", _STATEMENT).total_seconds()
        # A reference needs no slot and no publication.
        database = Database(str(table.reference_id), server, "", "", 0.0, wait)
        rows = sql.Identifier(*_parts(name)) if name else sql.SQL("({})").format(sql.SQL(query))
        address = f"postgresql://{server.shown}/{server.database}"
        if name:
            address += "/" + ".".join(_parts(name))
        return cls(shape, database, rows, address, freshness_of(values, _REFRESH))

    @property
    def reference_id(self) -> ReferenceId:
        """The reference table's name within the pipeline."""
        return self._shape.reference_id

    @property
    def address(self) -> str:
        """The database, and the table if it is one."""
        return self._address

    @property
    def declaration(self) -> str:
        """See ``Reference.declaration``."""
        return self._shape.declaration

    @property
    def freshness(self) -> ReferenceFreshness:
        """See ``Reference.freshness``."""
        return self._freshness

    def version(self) -> None:
        """Return no version, but check that the table can be read and has the columns."""
        self._ask(reads=False)

    def read(self) -> ReferenceRows:
        """All rows, as one snapshot of the database shows them."""
        rows = self._ask(reads=True)
        files = self._shape.files_of(rows)
        return ReferenceRows("rows", files)

    def _ask(self, *, reads: bool) -> pa.Table:
        try:
            with self._database.session() as connection:
                connection.execute(_BEGIN)
                self._require_columns(connection)
                data = self._copied(connection) if reads else b""
                connection.execute("COMMIT")
        except SourceUnavailable as error:
            raise ReferenceUnavailable(self.reference_id, error.reason) from None
        except InvalidConfig as error:
            # The server refuses the statement: no such table, no such column.
            raise self._shape.unfit(error.problem) from None
        return self._decoded(data)

    def _copied(self, connection: Connection) -> bytes:
        columns = sql.SQL(", ").join(map(sql.Identifier, self._shape.schema.names))
        statement = _COPY.format(columns=columns, rows=self._rows)
        pieces: list[bytes] = []
        size = 0
        for piece in copy_out(connection, statement):
            size += len(piece)
            self._shape.require_room(size)
            pieces.append(piece)
        return b"".join(pieces)

    def _require_columns(self, connection: Connection) -> None:
        cursor = connection.execute(_LOOK.format(rows=self._rows))
        there = {each.name: each.type_code for each in cursor.description or ()}
        for each in self._shape.schema:
            if each.name not in there:
                raise self._shape.unfit(f"it has no column `{each.name}`")
            oid = there[each.name]
            if not suits(oid, each.type):
                declared = f"declared as {each.type}"
                raise self._shape.unfit(f"`{each.name}` is {type_name(oid)}, {declared}")

    def _decoded(self, data: bytes) -> pa.Table:
        texts = parsed_texts(data, self._shape.schema.names)
        columns = []
        for each in self._shape.schema:
            column, wrong = converted(texts.column(each.name).combine_chunks(), each.type)
            if wrong:
                raise self._shape.unfit(f"`{each.name}`: {next(iter(wrong.values()))}")
            columns.append(column)
        return pa.table(columns, names=self._shape.schema.names)


def _parts(name: str) -> list[str]:
    return name.split(".") if "." in name else ["public", name]

"""Match a view with the table of a SQLite sink, and build the SQL statements for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.sqlite.columns import SqliteColumn, Storage
from laminar_dagster.sinks.sqlite.identifiers import lower, quote
from laminar_dagster.sinks.sqlite.mending import way_out
from laminar_dagster.sinks.sqlite.triggers import check_triggers

# Rows per INSERT statement: more than this many are no faster.
_ROWS_PER_STATEMENT: Final = 64

_FIND: Final = """
    SELECT name, type, sql FROM main.sqlite_master
    WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE
"""
_TRIGGERS: Final = """
    SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE
    ORDER BY name
"""


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column that the table has.

    Attributes:
        accepts: The storage classes it stores unchanged; for TEXT see ``keeps_digits``.
        keeps_digits: Whether text that looks like a number stays text.
        is_required: Whether an insert must name it.
        is_row_number: Whether it is the rowid, for which SQLite replaces a null with a number.
    """

    name: str
    declared: str
    accepts: frozenset[Storage]
    keeps_digits: bool
    is_required: bool
    is_generated: bool
    is_row_number: bool


@dataclass(frozen=True, slots=True)
class UniqueColumns:
    """Columns that are unique together.

    Attributes:
        columns: Their names in lower case.
        folding: The columns with a collation other than BINARY, by which different texts may be
            equal, and that collation.
    """

    columns: frozenset[str]
    folding: dict[str, str]


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """An existing table.

    Attributes:
        columns: The columns by lower-case name; SQLite ignores the case of ASCII letters.
        unique: The primary key and the unique indexes.
        triggers: The names of its triggers.
        definition: Its ``CREATE TABLE`` statement.
    """

    name: str
    columns: dict[str, ExistingColumn]
    unique: tuple[UniqueColumns, ...]
    triggers: tuple[str, ...]
    definition: str


@dataclass(frozen=True, slots=True)
class Fit:
    """What a table needs so that a view can be written to it.

    Attributes:
        statements: Create the table, or add columns.
        row_numbers: Columns of the view that are the rowid, so that they must not be null.
        has_triggers: Whether the table has triggers, which may drop rows.
    """

    statements: tuple[str, ...]
    row_numbers: frozenset[str] = frozenset()
    has_triggers: bool = False


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a table or a view of that name exists."""
    return connection.execute(_FIND, (table,)).fetchone() is not None


def look_up(connection: sqlite3.Connection, table: str) -> ExistingTable | None:
    """Describe a table, or None when there is none.

    Raises:
        Unwritable: The name is that of a view.
    """
    found = connection.execute(_FIND, (table,)).fetchone()
    if found is None:
        return None
    name, kind, definition = found
    if kind != "table":
        raise Unwritable(f"`{table}` is a view")
    is_strict = _is_strict(connection, name)
    rows = connection.execute(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)', (name,)
    ).fetchall()
    primary = frozenset(lower(row[0]) for row in rows if row[4])
    # A single-column INTEGER PRIMARY KEY is the rowid, which SQLite generates for a null.
    filled_in = primary if len(primary) == 1 else frozenset()
    columns = {}
    for column, declared, not_null, default, _, hidden in rows:
        accepts, keeps_digits = _affinity(declared, is_strict=is_strict)
        is_row_number = lower(column) in filled_in and declared.upper() == "INTEGER"
        columns[lower(column)] = ExistingColumn(
            name=column,
            declared=declared,
            accepts=accepts,
            keeps_digits=keeps_digits,
            is_required=bool(not_null) and default is None and not is_row_number,
            is_generated=hidden != 0,
            is_row_number=is_row_number,
        )
    # The primary key is added because a rowid has no index; any other one is listed twice then.
    unique = (UniqueColumns(primary, {}), *_unique_indexes(connection, name))
    triggers = connection.execute(_TRIGGERS, (name,)).fetchall()
    return ExistingTable(name, columns, unique, tuple(each for (each,) in triggers), definition)


def _is_strict(connection: sqlite3.Connection, table: str) -> bool:
    if sqlite3.sqlite_version_info < (3, 37):
        return False  # No such tables, and no such pragma.
    found = connection.execute(
        "SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'", (table,)
    ).fetchone()
    return bool(found and found[0])


def _unique_indexes(connection: sqlite3.Connection, table: str) -> Iterator[UniqueColumns]:
    indexes = connection.execute(
        'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,)
    ).fetchall()
    for (index,) in indexes:
        parts = connection.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)
        ).fetchall()
        # An index on an expression has parts without a name.
        if all(part for part, _ in parts):
            folding = {lower(part): each for part, each in parts if each.upper() != "BINARY"}
            yield UniqueColumns(frozenset(lower(part) for part, _ in parts), folding)


def _affinity(declared: str, *, is_strict: bool) -> tuple[frozenset[Storage], bool]:
    """The storage classes a column keeps unchanged; see https://sqlite.org/datatype3.html."""
    name = declared.upper()
    everything = frozenset(Storage)
    # An untyped column keeps text beside numbers, and sorts it after all of them.
    untyped = everything - {Storage.NUMERIC}
    if is_strict:
        if name == "ANY":
            return untyped, True
        own = {"INT": Storage.INTEGER}.get(name) or Storage(name)
        return frozenset({own}), True
    if "INT" in name:
        return everything, False
    if "CHAR" in name or "CLOB" in name or "TEXT" in name:
        return frozenset({Storage.TEXT, Storage.BLOB}), True
    if "BLOB" in name or not name:
        return untyped, True
    if "REAL" in name or "FLOA" in name or "DOUB" in name:
        # An integer would become a float, and lose digits above 2^53.
        return everything - {Storage.INTEGER, Storage.NUMERIC}, False
    return everything, False


def fit(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[SqliteColumn],
    key: tuple[str, ...],
    *,
    create: bool,
) -> Fit:
    """Match the columns with the table. Changes nothing.

    Raises:
        Unwritable: The table cannot hold the columns; says why.
        InvalidName: SQLite does not allow a column's name.
    """
    existing = look_up(connection, table)
    if existing is None:
        if not create:
            raise Unwritable(f"there is no table `{table}`; make it, or set create = 'true'")
        return Fit((_create_statement(table, columns, key),))
    missing = [column for column in columns if lower(column.name) not in existing.columns]
    if missing and not create:
        names = ", ".join(f"`{column.name}`" for column in missing)
        raise Unwritable(f"table `{table}` has no column {names}; add it, or set create = 'true'")
    known = [
        (column, there)
        for column in columns
        if (there := existing.columns.get(lower(column.name))) is not None
    ]
    _check_decimals(connection, existing, known)
    _check_text_keys(connection, existing, known, key)
    for column, there in known:
        _check_fit(table, column, there)
    ours = {lower(column.name) for column in columns}
    for lowered, there in existing.columns.items():
        if there.is_required and lowered not in ours:
            raise Unwritable(
                f"column `{there.name}` of table `{table}` must not be null and has no default,"
                " and the view has no such column"
            )
    if key:
        _check_key(table, existing, [column for column in columns if column.name in key])
    if existing.triggers:
        _check_triggers(connection, existing, [there.name for _, there in known], key)
    add = f"ALTER TABLE main.{quote(table)} ADD COLUMN"
    return Fit(
        tuple(f"{add} {_declare(column)}" for column in missing),
        frozenset(column.name for column, there in known if there.is_row_number),
        bool(existing.triggers),
    )


def _check_decimals(
    connection: sqlite3.Connection,
    existing: ExistingTable,
    known: Sequence[tuple[SqliteColumn, ExistingColumn]],
) -> None:
    """Refuse columns that hold, or may hold, decimals as text beside numbers."""
    texts = {
        there.name: column.type
        for column, there in known
        if column.storage is Storage.NUMERIC and there.keeps_digits and not there.is_generated
    }
    if not texts:
        return
    names = ", ".join(
        f"`{there.name}` ({f'declared {there.declared}' if there.declared else 'without a type'})"
        for _, there in known
        if there.name in texts
    )
    raise Unwritable(
        f"table `{existing.name}` keeps text in column {names}, and text does not compare as a"
        " number, so a DECIMAL needs NUMERIC; "
        + way_out(connection, existing.name, existing.definition, texts)
    )


def _check_text_keys(
    connection: sqlite3.Connection,
    existing: ExistingTable,
    known: Sequence[tuple[SqliteColumn, ExistingColumn]],
    key: tuple[str, ...],
) -> None:
    """Refuse decimal keys as text with another scale than the stored ones: 1.1 beside 1.10."""
    for column, there in known:
        is_text = column.storage is Storage.TEXT and pa.types.is_decimal(column.type)
        if not is_text or column.name not in key:
            continue
        # Skip keys near 0, which are written with an exponent and do not show their scale.
        find = (
            f"SELECT {quote(there.name)} FROM main.{quote(existing.name)}"
            f" WHERE {quote(there.name)} NOT LIKE '%E%' LIMIT 1"
        )
        found = connection.execute(find).fetchone()
        if found is None:
            continue
        digits, scale = len(str(found[0]).partition(".")[2]), max(column.type.scale, 0)
        if digits != scale:
            raise Unwritable(
                f"key column `{there.name}` of table `{existing.name}` holds text such as"
                f" {found[0]}, and the view's {column.type} has {scale} digits after the point:"
                f" the same number would be two keys; CAST it to DECIMAL(…, {digits}) in the view"
            )


def _check_triggers(
    connection: sqlite3.Connection,
    existing: ExistingTable,
    columns: Sequence[str],
    key: tuple[str, ...],
) -> None:
    statements = []
    if columns:
        insert = InsertStatement(existing.name, (*columns,), key, has_triggers=True)
        statements.append((insert.sql(1), len(columns)))
    else:
        statements.append((f"INSERT INTO main.{quote(existing.name)} DEFAULT VALUES", 0))
    if key:
        statements.append((delete_statement(existing.name, key), len(key)))
    check_triggers(connection, existing.name, existing.definition, statements, columns)


def _check_key(table: str, existing: ExistingTable, key: Sequence[SqliteColumn]) -> None:
    wanted = frozenset(lower(column.name) for column in key)
    found = [each for each in existing.unique if each.columns == wanted]
    if not found:
        names = ", ".join(quote(column.name) for column in key)
        raise Unwritable(
            f"the key of table `{table}` is not unique;"
            f" make it so: CREATE UNIQUE INDEX … ON {quote(table)} ({names})"
        )
    # All of them count: if several indexes match, SQLite chooses which one an upsert uses.
    folding = {name: collation for each in found for name, collation in each.folding.items()}
    for column in key:
        collation = folding.get(lower(column.name))
        if collation and column.storage is Storage.TEXT:
            raise Unwritable(
                f"column `{column.name}` of table `{table}` is part of the key, and unique by the"
                f" collation {collation}, which takes different texts for one;"
                " make the table or its index with COLLATE BINARY"
            )


def _check_fit(table: str, column: SqliteColumn, there: ExistingColumn) -> None:
    where = f"column `{there.name}` of table `{table}`"
    if there.is_generated:
        raise Unwritable(f"{where} is computed by SQLite and cannot be written")
    loses_digits = column.may_look_numeric and not there.keeps_digits
    if column.storage not in there.accepts or loses_digits:
        raise Unwritable(
            f"{where} is declared {there.declared}, which would change the values;"
            f" they need {column.storage.value}"
        )


def _create_statement(table: str, columns: Sequence[SqliteColumn], key: tuple[str, ...]) -> str:
    parts = [_declare(column) + " NOT NULL" * (column.name in key) for column in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    return f"CREATE TABLE main.{quote(table)} ({', '.join(parts)})"


def _declare(column: SqliteColumn) -> str:
    return f"{quote(column.name)} {column.storage.value}"


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """Inserts rows; in upsert mode, rows replace those with the same key.

    Columns that the view does not have are left as they are.

    Attributes:
        has_triggers: Whether the table has triggers.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    has_triggers: bool = False

    def sql(self, rows: int) -> str:
        """The statement for this number of rows."""
        names = ", ".join(map(quote, self.columns))
        one = f"({', '.join('?' * len(self.columns))})"
        values = ", ".join([one] * rows)
        # OR ABORT overrides ON CONFLICT clauses of the table, which may drop or replace rows. Not
        # with triggers: it would override the clauses of their statements too.
        insert = "INSERT" if self.has_triggers else "INSERT OR ABORT"
        return f"{insert} INTO main.{quote(self.table)} ({names}) VALUES {values}{self._conflict()}"

    def rows_at_once(self, connection: sqlite3.Connection) -> int:
        """The number of rows per statement, within SQLite's limit of parameters."""
        limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        return max(1, min(_ROWS_PER_STATEMENT, limit // len(self.columns)))

    def _conflict(self) -> str:
        if not self.key:
            return ""
        target = ", ".join(map(quote, self.key))
        # If all columns are key columns, update one to itself: DO NOTHING would not count the row.
        others = [quote(name) for name in self.columns if name not in self.key] or [
            quote(self.key[0])
        ]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f" ON CONFLICT ({target}) DO UPDATE SET {changes}"


def delete_statement(table: str, key: tuple[str, ...]) -> str:
    """The statement that deletes the row of one key."""
    # Qualified, because SQLite treats an unknown quoted name as a string.
    name = quote(table)
    # BINARY, as in the key's index: by the column's own collation, other keys might match too.
    matches = " AND ".join(f"{name}.{quote(column)} COLLATE BINARY = ?" for column in key)
    return f"DELETE FROM main.{name} WHERE {matches}"


@dataclass(frozen=True, slots=True)
class SearchStatement:
    """Finds which of several numbered keys have a row; returns their numbers."""

    table: str
    key: tuple[str, ...]

    def sql(self, keys: int) -> str:
        """The statement for this number of keys; a query per key would be thirty times slower."""
        columns = [f"k{number}" for number in range(len(self.key))]
        one = f"({', '.join('?' * (len(columns) + 1))})"
        name = quote(self.table)
        matches = " AND ".join(
            f"{name}.{quote(column)} COLLATE BINARY = wanted.{wanted}"
            for column, wanted in zip(self.key, columns, strict=True)
        )
        return (
            f"WITH wanted (place, {', '.join(columns)}) AS (VALUES {', '.join([one] * keys)})"
            # CROSS JOIN fixes the join order, so that SQLite does not scan the table.
            f" SELECT wanted.place FROM wanted CROSS JOIN main.{name} ON {matches}"
        )

    def keys_at_once(self, connection: sqlite3.Connection) -> int:
        """The number of keys per statement, within SQLite's limit of parameters."""
        limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        return max(1, min(_ROWS_PER_STATEMENT, limit // (len(self.key) + 1)))

"""Read a table's columns, indexes and privileges from MySQL's catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from laminar_dagster.clients.mysql.errors import code_of
from laminar_dagster.clients.mysql.identifiers import quoted
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.mysql.columns import ColumnType

_TABLE: Final = """
    SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
"""
_COLUMNS: Final = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, PRIVILEGES,
           CHARACTER_SET_NAME, COLLATION_NAME, CHARACTER_MAXIMUM_LENGTH, CHARACTER_OCTET_LENGTH,
           NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
    ORDER BY ORDINAL_POSITION
"""
_UNIQUE: Final = """
    SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND NON_UNIQUE = 0
    ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_TABLES: Final = ("BASE TABLE", "SYSTEM VERSIONED")
_GENERATED: Final = re.compile(r"\b(VIRTUAL|STORED|PERSISTENT) GENERATED", re.IGNORECASE)

# A privilege is tested with a statement that the server refuses after it has checked privileges: a
# duplicate column. So nothing is created, and roles and wildcards are taken into account.
_TWICE: Final = 1060
# The table exists: another committer created it a moment before.
_THERE: Final = 1050
_DENIED: Final = (1044, 1142, 1227)


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column that the table has.

    Attributes:
        is_required: Whether an insert must name it.
        is_generated: Whether the server computes it.
        is_numbered: Whether it is ``AUTO_INCREMENT``.
        rights: This account's privileges on the column, such as select, insert and update.
    """

    name: str
    type: ColumnType
    is_required: bool
    is_generated: bool
    is_numbered: bool
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """Columns that are unique together.

    Attributes:
        is_whole: Whether it indexes whole values, not prefixes or expressions.
    """

    name: str
    columns: frozenset[str]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """An existing table.

    Attributes:
        columns: By case-folded name: MySQL's column names are case-insensitive.
    """

    columns: dict[str, ExistingColumn]
    unique: tuple[UniqueIndex, ...]

    def column(self, name: str) -> ExistingColumn | None:
        """The column of a name, whatever its case."""
        return self.columns.get(name.casefold())


def engine_of(session: Session, table: str) -> str | None:
    """The storage engine of a table; None if there is no such table."""
    found = _row_of(session, table)
    return None if found is None else str(found[2])


def require_transactions(table: str, engine: str) -> None:
    """Refuse engines other than InnoDB, whose rows are not rolled back with the transaction.

    Raises:
        Unwritable: The table has another engine.
    """
    if engine.lower() != "innodb":
        raise Unwritable(
            f"table `{table}` is kept by the engine {engine}, which has no transactions that a"
            " ledger can share; ALTER TABLE … ENGINE = InnoDB"
        )


def has_table(session: Session, table: str) -> bool:
    """Whether a table or a view of that name exists."""
    return _row_of(session, table) is not None


def look_up(session: Session, table: str) -> ExistingTable | None:
    """Describe a table, or None when there is none.

    Raises:
        Unwritable: The name is a view's, or the table has no transactions.
    """
    found = _row_of(session, table)
    if found is None:
        return None
    _, kind, engine = found
    if kind not in _TABLES:
        raise Unwritable(f"`{table}` is no table but a {str(kind).lower()}")
    require_transactions(table, str(engine))
    columns = [_column(*row) for row in session.run(_COLUMNS, [table]).rows]
    indexes: dict[str, list[tuple[str | None, int | None]]] = {}
    for index, column, part in session.run(_UNIQUE, [table]).rows:
        indexes.setdefault(index, []).append((column, part))
    unique = tuple(
        UniqueIndex(
            name,
            frozenset(column for column, _ in parts if column is not None),
            all(column is not None and part is None for column, part in parts),
        )
        for name, parts in indexes.items()
    )
    return ExistingTable({column.name.casefold(): column for column in columns}, unique)


def may_create(session: Session, table: str) -> bool:
    """Whether this account may create a table. Commits an open transaction; creates nothing."""
    return _may(session, f"CREATE TABLE {quoted(table)} (x int, x int)")


def may_make_temporary(session: Session, table: str) -> bool:
    """Whether this account may create a temporary table. Creates nothing."""
    return _may(session, f"CREATE TEMPORARY TABLE {quoted(table)} (x int, x int)")


def may_alter(session: Session, table: str) -> bool:
    """Whether this account may add columns. Commits an open transaction; changes nothing."""
    return _may(session, f"ALTER TABLE {quoted(table)} ADD _laminar int, ADD _laminar int")


def may_delete(session: Session, table: str) -> bool:
    """Whether this account may delete rows. Deletes nothing."""
    return _may(session, f"EXPLAIN DELETE FROM {quoted(table)} WHERE FALSE")


def _may(session: Session, statement: str) -> bool:
    try:
        session.run(statement)
    except pymysql.Error as error:
        if code_of(error) in _DENIED:
            return False
        if code_of(error) not in (_TWICE, _THERE):
            raise
    return True


def _row_of(session: Session, table: str) -> tuple[Any, ...] | None:
    """The catalogue's row of a table. An exact name wins where names are case-insensitive."""
    rows = session.run(_TABLE, [table]).rows
    exact = [row for row in rows if row[0] == table]
    return next(iter(exact or rows), None)


def _column(
    name: str,
    kind: str,
    shown: str,
    nullable: str,
    default: str | None,
    extra: str,
    privileges: str,
    charset: str | None,
    collation: str | None,
    length: int | None,
    octets: int | None,
    precision: int | None,
    scale: int | None,
    fraction: int | None,
) -> ExistingColumn:
    is_generated = _GENERATED.search(extra) is not None
    is_numbered = "auto_increment" in extra.lower()
    column = ColumnType(
        name=kind.lower(),
        shown=shown,
        is_unsigned="unsigned" in shown.lower(),
        is_nullable=nullable == "YES",
        length=length,
        octets=octets,
        precision=precision,
        scale=scale,
        fraction=fraction,
        charset=charset,
        collation=collation,
    )
    has_default = default is not None or is_generated or is_numbered
    return ExistingColumn(
        name=name,
        type=column,
        is_required=not column.is_nullable and not has_default,
        is_generated=is_generated,
        is_numbered=is_numbered,
        rights=frozenset(privileges.lower().replace(" ", "").split(",")),
    )

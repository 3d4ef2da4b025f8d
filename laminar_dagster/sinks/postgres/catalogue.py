"""Read a table's columns, indexes and privileges from PostgreSQL's catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.postgres.columns import ColumnType

_SCHEMA: Final = sql.SQL("""
    SELECT pg_catalog.has_schema_privilege(oid, 'CREATE')
    FROM pg_catalog.pg_namespace WHERE nspname = %s
""")
_TABLE: Final = sql.SQL("""
    SELECT c.oid, c.relkind::text, c.relpersistence::text,
           pg_catalog.has_any_column_privilege(c.oid, 'INSERT'),
           pg_catalog.has_any_column_privilege(c.oid, 'SELECT'),
           pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'),
           pg_catalog.has_table_privilege(c.oid, 'DELETE'),
           pg_catalog.pg_has_role(c.relowner, 'USAGE')
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
""")
# Domains are resolved to their base types.
_COLUMNS: Final = sql.SQL("""
    WITH RECURSIVE base AS (
        SELECT attnum, atttypid AS type, atttypmod AS modifier
        FROM pg_catalog.pg_attribute
        WHERE attrelid = %(table)s AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT base.attnum, t.typbasetype,
               CASE WHEN base.modifier = -1 THEN t.typtypmod ELSE base.modifier END
        FROM base JOIN pg_catalog.pg_type t ON t.oid = base.type WHERE t.typtype = 'd'
    )
    SELECT a.attname::text,
           CASE WHEN t.typtype = 'e' THEN 'enum'
                WHEN n.nspname = 'pg_catalog' OR t.typname = 'citext' THEN t.typname::text
                ELSE '' END,
           base.modifier,
           pg_catalog.format_type(a.atttypid, a.atttypmod),
           a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
           a.attgenerated <> '' OR a.attidentity = 'a',
           EXISTS (SELECT FROM pg_catalog.pg_collation c
                   WHERE c.oid = a.attcollation AND NOT c.collisdeterministic)
    FROM base
    JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype <> 'd'
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attnum = base.attnum
    ORDER BY a.attnum
""")
# Unique indexes that ON CONFLICT can use: valid, immediate, not partial, without expressions.
_UNIQUE: Final = sql.SQL("""
    SELECT ARRAY(
        SELECT a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = i.indrelid
          AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    ), ARRAY(
        SELECT a.attname::text
        FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS part (number, collated)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = part.number
        JOIN pg_catalog.pg_collation c ON c.oid = part.collated AND NOT c.collisdeterministic
    )
    FROM pg_catalog.pg_index i
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL
""")
_TEMPORARY: Final = sql.SQL(
    "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')"
)
_FOREIGN_PARTS: Final = sql.SQL("""
    SELECT c.relname::text
    FROM pg_catalog.pg_partition_tree(%s) p JOIN pg_catalog.pg_class c ON c.oid = p.relid
    WHERE c.relkind = 'f' OR c.relpersistence <> 'p' LIMIT 1
""")

_OTHERS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
    "t": "a TOAST table",
    # A foreign server commits on its own, so rows and ledger would not be atomic.
    "f": "a foreign table, which is not committed together with its ledger",
}


@dataclass(frozen=True, slots=True)
class ExistingColumn:
    """A column that the table has.

    Attributes:
        is_required: Whether an insert must name it.
        is_generated: Whether the server computes it.
        is_folding: Whether its collation treats different texts as equal.
    """

    name: str
    type: ColumnType
    is_required: bool
    is_generated: bool
    is_folding: bool


@dataclass(frozen=True, slots=True)
class UniqueColumns:
    """Columns that are unique together.

    Attributes:
        folding: The columns for which the index has a collation that treats different texts as
            equal.
    """

    columns: frozenset[str]
    folding: frozenset[str]


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """An existing table.

    Attributes:
        columns: The columns by name.
        unique: The unique indexes that ON CONFLICT can use.
        rights: This role's privileges among INSERT, SELECT, UPDATE and DELETE.
        is_ours: Whether this role owns the table, so that it may alter it.
    """

    columns: dict[str, ExistingColumn]
    unique: tuple[UniqueColumns, ...]
    rights: frozenset[str]
    is_ours: bool

    def column(self, name: str) -> ExistingColumn | None:
        """The column with a name, or else the only one whose name differs just in case."""
        if found := self.columns.get(name):
            return found
        alike = [each for each in self.columns if each.casefold() == name.casefold()]
        return self.columns[alike[0]] if len(alike) == 1 else None


def may_create(connection: Connection, schema: str) -> bool:
    """Whether this role may create tables in a schema.

    Raises:
        Unwritable: There is no such schema.
    """
    found = connection.execute(_SCHEMA, (schema,)).fetchone()
    if found is None:
        raise Unwritable(f"there is no schema `{schema}`; make it: CREATE SCHEMA …")
    return bool(found[0])


def may_make_temporary(connection: Connection) -> bool:
    """Whether this role may create temporary tables, which upserts need."""
    return connection.execute(_TEMPORARY).fetchone() == (True,)


def has_table(connection: Connection, schema: str, table: str) -> bool:
    """Whether a table, or another relation of that name, exists."""
    return connection.execute(_TABLE, (schema, table)).fetchone() is not None


def look_up(connection: Connection, schema: str, table: str) -> ExistingTable | None:
    """Describe a table, or None when there is none.

    Raises:
        Unwritable: The name is that of a view or another relation, or the table is not logged.
    """
    found = connection.execute(_TABLE, (schema, table)).fetchone()
    if found is None:
        return None
    oid, kind, persistence, *rights, is_ours = found
    if kind not in ("r", "p"):
        raise Unwritable(f"`{table}` is {_OTHERS.get(kind, 'no table')}")
    if persistence != "p":
        # A crash would empty an unlogged table, but not its ledger.
        raise Unwritable(f"table `{table}` is lost when the server crashes; make it LOGGED")
    if kind == "p" and (part := connection.execute(_FOREIGN_PARTS, (oid,)).fetchone()):
        raise Unwritable(
            f"partition `{part[0]}` of table `{table}` is foreign or not logged,"
            " so it is not committed together with its ledger"
        )
    columns = {
        name: ExistingColumn(name, ColumnType(base, modifier, shown), *others)
        for name, base, modifier, shown, *others in connection.execute(_COLUMNS, {"table": oid})
    }
    unique = tuple(
        UniqueColumns(frozenset(names), frozenset(folding))
        for names, folding in connection.execute(_UNIQUE, (oid,))
    )
    names = ("INSERT", "SELECT", "UPDATE", "DELETE")
    granted = frozenset(name for name, has in zip(names, rights, strict=True) if has)
    return ExistingTable(columns, unique, granted, is_ours)

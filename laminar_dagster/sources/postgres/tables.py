"""The tables of a source: checks the set-up of the server, and describes their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.changes.planned import no_such_key
from laminar_dagster.sources.postgres.decoding import WHOLE_ROWS
from laminar_dagster.sources.postgres.options import PostgresCdcOptions
from laminar_dagster.sources.postgres.publication import (
    Publication,
    find_publication,
    publication_problems,
)
from laminar_dagster.sources.postgres.server_state import ServerState
from laminar_dagster.sources.postgres.values import suits, type_name

_TABLES: Final = sql.SQL("""
    SELECT space.nspname || '.' || class.relname, class.relkind::text,
           class.relreplident = 'f' AND
               (SELECT pg_catalog.bool_and(leaf.relreplident = 'f')
                FROM pg_catalog.pg_partition_tree(class.oid) AS tree
                JOIN pg_catalog.pg_class AS leaf ON leaf.oid = tree.relid WHERE tree.isleaf)
               IS NOT FALSE,
           pg_catalog.pg_relation_size(class.oid),
           coalesce(pg_catalog.pg_relation_size(nullif(class.reltoastrelid, 0)), 0),
           pg_catalog.current_setting('block_size')::int8,
           ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute
                 WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
           ARRAY(SELECT atttypid::int8 FROM pg_catalog.pg_attribute
                 WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
           ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute
                 WHERE attrelid = class.oid AND attnum > 0 AND attgenerated <> '')
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE space.nspname || '.' || class.relname = ANY (%s) AND class.relkind IN ('r', 'p')
""")

# Indexes that hold at any time: a deferred constraint may be violated by one change of a
# transaction and restored by the next. Nullable columns do not count: nulls do not conflict.
_UNIQUE: Final = sql.SQL("""
    SELECT space.nspname || '.' || class.relname, found.columns
    FROM pg_catalog.pg_index AS index
    JOIN pg_catalog.pg_class AS class ON class.oid = index.indrelid
    JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    CROSS JOIN LATERAL (
        SELECT array_agg(attname::text) AS columns, bool_and(attnotnull) AS is_never_null
        FROM pg_catalog.pg_attribute
        WHERE attrelid = index.indrelid
          AND attnum = ANY ((index.indkey::int2[])[0:index.indnkeyatts - 1])
    ) AS found
    WHERE space.nspname || '.' || class.relname = ANY (%s) AND found.is_never_null
      AND index.indisunique AND index.indisvalid AND index.indimmediate
      AND index.indpred IS NULL AND index.indexprs IS NULL
""")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the database.

    Attributes:
        is_partitioned: Whether its rows are in partitions.
        sends_whole_rows: Whether a change has the whole old row. For a partitioned table, whether
            it and all its partitions do: these log the row, and the table states what was logged.
        blocks: How many blocks its rows take.
        block_bytes: The size of a block, with its share of the values stored outside (TOAST).
        columns: The type ids of all columns, by name.
        generated: The generated columns.
    """

    name: str
    is_partitioned: bool
    sends_whole_rows: bool
    blocks: int
    block_bytes: int
    columns: dict[str, int]
    generated: frozenset[str] = frozenset()

    @property
    def own_rows(self) -> sql.Composed:
        """The table in a FROM clause, without the rows of tables that inherit from it.

        Changes to those have the child table's name. Partitions, however, belong to the table.
        """
        only = sql.SQL("" if self.is_partitioned else "ONLY ")
        return only + sql.Identifier(*self.name.split("."))


def find_tables(connection: Connection, wanted: Sequence[str]) -> dict[str, Table]:
    """Describe those of the tables that exist."""
    rows = connection.execute(_TABLES, (list(wanted),)).fetchall()
    return {
        name: Table(
            name,
            kind == "p",
            sends_whole_rows,
            -(-size // block),
            block + outside // max(1, -(-size // block)),
            dict(zip(names, types, strict=True)),
            frozenset(generated),
        )
        for name, kind, sends_whole_rows, size, outside, block, names, types, generated in rows
    }


def check_setup(
    connection: Connection,
    state: ServerState,
    options: PostgresCdcOptions,
    declared: Sequence[pa.Field],
    where: str,
) -> dict[str, Table]:
    """Refuse a server that the source cannot read from; says what to change on it.

    Returns:
        The tables.

    Raises:
        InvalidConfig: Lists all problems.
    """
    problems: list[tuple[str, str]] = []
    if state.wal_level != "logical":
        problem = f"the server's `wal_level` is {state.wal_level}, not logical"
        problems.append((problem, "ALTER SYSTEM SET wal_level = 'logical', and restart it"))
    if state.encoding == "SQL_ASCII":
        problems.append(("the database's encoding is SQL_ASCII", "its texts cannot be told"))
    tables = find_tables(connection, options.tables)
    problems += [
        (f"there is no table {name}", "check its name and its schema")
        for name in options.tables
        if name not in tables
    ]
    publication = find_publication(connection, options.publication, options.tables)
    partitioned = frozenset(name for name, each in tables.items() if each.is_partitioned)
    problems += publication_problems(publication, options.publication, options.tables, partitioned)
    problems += _of_columns(tables, declared)
    problems += _of_key(connection, options)
    if publication is not None:
        problems += _of_sent_columns(tables, publication, declared)
    if options.before == "required":
        names = {each.name for each in declared}
        problems += [
            (f"table {each.name} does not send whole rows", _whole_rows(each))
            for each in tables.values()
            if not each.sends_whole_rows and names & set(each.columns)
        ]
    if problems:
        (first, hint), *others = problems
        rest = [f"{problem} ({advice})" for problem, advice in others]
        raise InvalidConfig(where, "; ".join([first, *rest]), hint)
    return tables


def require_key(connection: Connection, options: PostgresCdcOptions, where: str) -> None:
    """Refuse a declared PRIMARY KEY that is not unique in a table, or no longer.

    Sinks rely on the key: two rows with the same key would overwrite each other.

    Raises:
        InvalidConfig: Names the table.
    """
    for problem, hint in _of_key(connection, options):
        raise InvalidConfig(where, problem, hint)


def _of_key(connection: Connection, options: PostgresCdcOptions) -> list[tuple[str, str]]:
    if not options.key:
        return []
    unique: dict[str, list[set[str]]] = {}
    for name, columns in connection.execute(_UNIQUE, (list(options.tables),)).fetchall():
        unique.setdefault(name, []).append(set(columns))
    return [
        no_such_key(name, options.key)
        for name in options.tables
        if not any(each <= {*options.key} for each in unique.get(name, ()))
    ]


def _whole_rows(table: Table) -> str:
    partitions = ", and each of its partitions," if table.is_partitioned else ""
    return WHOLE_ROWS.replace("…", table.name + partitions)


def _of_columns(tables: dict[str, Table], declared: Sequence[pa.Field]) -> list[tuple[str, str]]:
    problems = []
    for each in declared:
        holders = [table for table in tables.values() if each.name in table.columns]
        for table in holders:
            oid = table.columns[each.name]
            if not suits(oid, each.type):
                problem = f"{table.name}.{each.name} is {type_name(oid)}, declared as {each.type}"
                problems.append((problem, "declare a type that holds its values, or STRING"))
        if tables and len(holders) < (len(tables) if not each.nullable else 1):
            lacking = [name for name, table in tables.items() if each.name not in table.columns]
            problem = f"{', '.join(lacking)} has no column `{each.name}`"
            problems.append((problem, "a column that some of the tables lack must be nullable"))
    return problems


def _of_sent_columns(
    tables: dict[str, Table], publication: Publication, declared: Sequence[pa.Field]
) -> list[tuple[str, str]]:
    """The problems of declared columns that the snapshot would have, but no change."""
    problems = []
    for name, published in publication.tables.items():
        held = tables[name].columns if name in tables else {}
        for column in (each.name for each in declared if each.name in held):
            if column in published.columns:
                continue
            if column in tables[name].generated:
                problem = f"{name}.{column} is generated, and changes come without it"
                problems.append((problem, "do not declare it; a view may compute it"))
            else:
                problem = f"publication {publication.name} leaves {name}.{column} out"
                problems.append((problem, "do not declare it, or publish all columns"))
    return problems

"""Which tables, rows and columns a publication sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection

_PUBLICATION: Final = sql.SQL("""
    SELECT oid::int8, pubinsert AND pubupdate AND pubdelete AND pubtruncate
    FROM pg_catalog.pg_publication WHERE pubname = %s
""")
# Servers before 15 have neither row filters nor column lists, and lack these columns.
_PUBLISHED: Final = sql.SQL("""
    SELECT shown.schemaname || '.' || shown.tablename, class.oid::int8,
           pg_catalog.to_jsonb(shown) ->> 'rowfilter',
           ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute
                 WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped
                   AND ({sends_generated} OR attgenerated = '')
                   AND (pg_catalog.to_jsonb(shown) -> 'attnames' ? attname::text) IS NOT FALSE
                 ORDER BY attnum),
           ARRAY(SELECT member.oid::int8 FROM ({members}) AS member (oid) ORDER BY 1)
    FROM pg_catalog.pg_publication_tables AS shown
    JOIN pg_catalog.pg_namespace AS space ON space.nspname = shown.schemaname
    JOIN pg_catalog.pg_class AS class
      ON class.relnamespace = space.oid AND class.relname = shown.tablename
    JOIN pg_catalog.pg_publication AS publication USING (pubname)
    WHERE pubname = %s AND shown.schemaname || '.' || shown.tablename = ANY (%s)
""")
_FAMILY: Final = sql.SQL(
    "SELECT class.oid UNION SELECT relid FROM pg_catalog.pg_partition_ancestors(class.oid)"
)
# Why a table is in the publication: by itself, or because the publication is for all tables.
_MEMBERS: Final = sql.SQL("""
    SELECT publication.oid WHERE publication.puballtables
    UNION SELECT of_table.oid FROM pg_catalog.pg_publication_rel AS of_table
          WHERE of_table.prpubid = publication.oid AND of_table.prrelid IN ({family})
""")
_MEMBERS_BY_SCHEMA: Final = sql.SQL("""
    UNION SELECT of_schema.oid FROM pg_catalog.pg_publication_namespace AS of_schema
          WHERE of_schema.pnpubid = publication.oid AND of_schema.pnnspid IN (
              SELECT relnamespace FROM pg_catalog.pg_class AS one WHERE one.oid IN ({family}))
""")
_WITH_SCHEMAS: Final = 150_000
_WITH_GENERATED: Final = 180_000


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table, as a publication sends it.

    Attributes:
        row_filter: The condition for the rows that are sent; None for all of them.
        columns: The columns that are sent. Before PostgreSQL 18, generated ones are not.
        members: The ids of the catalogue rows that make it a member: a table that was removed and
            added again has other ones.
    """

    oid: int
    row_filter: str | None
    columns: tuple[str, ...]
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication.

    Attributes:
        sends_all_kinds: Whether it sends inserts, updates, deletes and truncates.
        tables: Those of the requested tables that it sends.
    """

    name: str
    sends_all_kinds: bool
    tables: Mapping[str, PublishedTable]


def find_publication(
    connection: Connection, name: str, tables: Sequence[str]
) -> Publication | None:
    """A publication, with some tables; None if it does not exist. Takes no lock on a table."""
    found = connection.execute(_PUBLICATION, (name,)).fetchone()
    if found is None:
        return None
    version = connection.info.server_version
    members = _MEMBERS.format(family=_FAMILY)
    if version >= _WITH_SCHEMAS:
        members += _MEMBERS_BY_SCHEMA.format(family=_FAMILY)
    query = _PUBLISHED.format(
        sends_generated=sql.Literal(version >= _WITH_GENERATED), members=members
    )
    rows = connection.execute(query, (name, list(tables))).fetchall()
    published = {
        table: PublishedTable(oid, row_filter, tuple(columns), tuple(ids))
        for table, oid, row_filter, columns, ids in rows
    }
    return Publication(name, found[1], published)


def publication_problems(
    found: Publication | None, name: str, tables: Sequence[str], partitioned: frozenset[str]
) -> list[tuple[str, str]]:
    """Why a publication does not send every change of some tables, each with the remedy.

    Args:
        found: The publication, if it exists.
        name: Its name.
        tables: The captured tables.
        partitioned: Those of them that are partitioned.
    """
    if found is None:
        make = f'CREATE PUBLICATION "{name}" FOR TABLE {", ".join(tables)}'
        return [(f"there is no publication {name}", make)]
    problems = []
    if not found.sends_all_kinds:
        kinds = "'insert, update, delete, truncate'"
        change = f'ALTER PUBLICATION "{name}" SET (publish = {kinds})'
        problems.append((f"publication {name} leaves changes out", change))
    missing = [each for each in tables if each not in found.tables]
    roots = [each for each in missing if each in partitioned]
    if roots:
        # In the publication or not, its changes come under the names of its partitions.
        change = f'ALTER PUBLICATION "{name}" SET (publish_via_partition_root)'
        shown = f"publication {name} does not publish {', '.join(roots)} as a whole"
        problems.append((shown, f"{change}, with the table in it"))
        missing = [each for each in missing if each not in roots]
    if missing:
        change = f'ALTER PUBLICATION "{name}" ADD TABLE {", ".join(missing)}'
        problems.append((f"publication {name} lacks {', '.join(missing)}", change))
    for table, published in found.tables.items():
        if published.row_filter is not None:
            shown = f"publication {name} sends only rows of {table} with {published.row_filter}"
            change = f'ALTER PUBLICATION "{name}" DROP TABLE {table}, then ADD TABLE {table}'
            problems.append((shown, f"{change}; a view may filter them"))
    return problems

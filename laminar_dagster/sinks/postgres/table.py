"""Match a view with the table of a PostgreSQL sink: check it, and plan ``CREATE`` or ``ALTER``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from psycopg import sql

from laminar_dagster.clients.identifiers import require_identifier
from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.sinks import matching
from laminar_dagster.sinks.changes import WEIGHT, Unwritable
from laminar_dagster.sinks.postgres.catalogue import (
    ExistingColumn,
    ExistingTable,
    look_up,
    may_create,
    may_make_temporary,
)
from laminar_dagster.sinks.postgres.columns import (
    ColumnType,
    Encode,
    PostgresColumn,
    encoder_for,
    folds_texts,
    in_one_spelling,
    type_for,
)

# The server truncates longer names, with no more than a notice.
_LONGEST_NAME: Final = 63


def identifier(name: str) -> str:
    """Check a name, and return it.

    Raises:
        InvalidName: PostgreSQL does not allow the name, or would truncate it.
    """
    return require_identifier(name, longest=_LONGEST_NAME)


@dataclass(frozen=True, slots=True)
class Target(matching.Target):
    """A table in a schema."""

    schema: str

    @property
    def qualified(self) -> sql.Identifier:
        """The table's name with its schema, independent of the search path."""
        return sql.Identifier(self.schema, self.table)


@dataclass(frozen=True, slots=True)
class Fit:
    """How the columns of a view are written to the table.

    Attributes:
        statements: The ``CREATE`` or ``ALTER`` statements to run first.
    """

    columns: tuple[PostgresColumn, ...]
    statements: tuple[sql.Composed, ...]


def fit(connection: Connection, target: Target, schema: pa.Schema) -> Fit:
    """Match the columns with the table. Changes nothing.

    Raises:
        Unwritable: The table cannot hold the columns; says why.
        InvalidName: PostgreSQL does not allow a column's name.
    """
    fields = matching.columns_for(target, schema, identifier)
    if target.key and not may_make_temporary(connection):
        raise Unwritable(
            "this role may not make temporary tables, which mode `upsert` needs;"
            " GRANT TEMPORARY ON DATABASE … TO …"
        )
    existing = look_up(connection, target.schema, target.table)
    if existing is None:
        return _new_table(connection, target, fields)
    _check_rights(target, existing, deletes=WEIGHT in schema.names)
    columns, missing = matching.match(
        fields, lambda field: _fitted(target, existing, field), lambda field: _made(target, field)
    )
    matching.check_distinct((column.name, column.target) for column in columns)
    _check_missing(target, existing, missing)
    required = (there.name for there in existing.columns.values() if there.is_required)
    matching.check_required(target.table, required, (column.target for column in columns))
    key = [column.target for column in columns if column.name in target.key]
    if key:
        _check_unique(target, existing, key)
    add = sql.SQL("ALTER TABLE {} ADD COLUMN {}")
    added = tuple(add.format(target.qualified, _declaration(column)) for column in missing)
    return Fit(tuple(columns), added)


def _check_unique(target: Target, existing: ExistingTable, key: Sequence[str]) -> None:
    found = [each for each in existing.unique if each.columns == frozenset(key)]
    if not found:
        names = sql.SQL(", ").join(map(sql.Identifier, key)).as_string()
        raise Unwritable(
            f"the key of table `{target.table}` is not unique; make it so:"
            f" CREATE UNIQUE INDEX … ON {target.qualified.as_string()} ({names})"
        )
    # If several unique indexes have these columns, ON CONFLICT uses all of them.
    if folding := [name for name in key if any(name in each.folding for each in found)]:
        where = f"column `{folding[0]}` of table `{target.table}`"
        raise _one_key_of_several(where, "the collation of a unique index")


def _check_rights(target: Target, existing: ExistingTable, *, deletes: bool) -> None:
    wanted = ["INSERT"]
    if target.key:
        wanted += ["SELECT", "UPDATE"] + ["DELETE"] * deletes
    if lacking := [right for right in wanted if right not in existing.rights]:
        raise Unwritable(
            f"this role may not {', '.join(lacking)} on table `{target.table}`; grant it:"
            f" GRANT {', '.join(lacking)} ON {target.qualified.as_string()} TO …"
        )


def _fitted(target: Target, existing: ExistingTable, field: pa.Field) -> PostgresColumn | None:
    """The existing column for a field; None if the table has none."""
    there = existing.column(target.name_of(field.name))
    if there is None:
        return None
    where = f"column `{there.name}` of table `{target.table}`"
    matching.check_not_computed(where, there.is_generated)
    encode = encoder_for(field, there.type)
    if encode is None:
        raise matching.unfit(where, there.type.shown, field.type, type_for(field).shown)
    if field.name in target.key:
        encode = _as_key(where, there, encode)
    return PostgresColumn(field.name, there.name, there.type, encode)


def _as_key(where: str, there: ExistingColumn, encode: Encode) -> Encode:
    """The encoder of a key column, which must keep different keys of the view different.

    Otherwise a key in a later epoch would silently replace the row of another key.

    Raises:
        Unwritable: The column treats different keys as equal.
    """
    if there.is_folding:
        raise _one_key_of_several(where, "its collation")
    if folds_texts(there.type):
        raise _one_key_of_several(where, f"its type {there.type.shown}")
    return in_one_spelling(encode) if there.type.name == "uuid" else encode


def _one_key_of_several(where: str, culprit: str) -> Unwritable:
    return Unwritable(
        f"{where} is part of the key, and {culprit} takes different texts for one;"
        " make it text, with a deterministic collation"
    )


def _made(target: Target, field: pa.Field) -> PostgresColumn:
    kind: ColumnType = type_for(field)
    encode = encoder_for(field, kind)
    assert encode is not None, "a type's own column takes it"
    return PostgresColumn(field.name, target.name_of(field.name), kind, encode)


def _check_missing(
    target: Target, existing: ExistingTable, missing: Sequence[PostgresColumn]
) -> None:
    names = matching.check_may_add(target, (column.target for column in missing))
    if names and not existing.is_ours:
        raise Unwritable(
            f"table `{target.table}` has no column {names}, and this role does not own the table;"
            " add it, or let the owner do so"
        )


def _new_table(connection: Connection, target: Target, fields: Sequence[pa.Field]) -> Fit:
    allowed = may_create(connection, target.schema)
    if not target.create:
        raise Unwritable(
            f"there is no table `{target.table}` in schema `{target.schema}`;"
            " make it, or set create = 'true'"
        )
    if not allowed:
        raise Unwritable(
            f"there is no table `{target.table}`, and this role may not make one in schema"
            f" `{target.schema}`; make it, or GRANT CREATE ON SCHEMA"
        )
    columns = tuple(_made(target, field) for field in fields)
    matching.check_distinct((column.name, column.target) for column in columns)
    parts: list[sql.Composable] = [
        _declaration(column) + sql.SQL(" NOT NULL" if column.name in target.key else "")
        for column in columns
    ]
    if target.key:
        key = map(sql.Identifier, map(target.name_of, target.key))
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(key)))
    body = sql.SQL(", ").join(parts)
    return Fit(columns, (sql.SQL("CREATE TABLE {} ({})").format(target.qualified, body),))


def _declaration(column: PostgresColumn) -> sql.Composed:
    # No injection: `shown` is one of the texts that `type_for` makes.
    kind = sql.SQL(column.type.shown)
    return sql.SQL("{} {}").format(sql.Identifier(column.target), kind)

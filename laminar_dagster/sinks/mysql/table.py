"""Match a view with the table of a MySQL sink: check it, and plan ``CREATE`` or ``ALTER``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.mysql.identifiers import identifier, listed, quoted
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.sinks.arrow_values import is_binary, is_string
from laminar_dagster.sinks.changes import WEIGHT, Unwritable
from laminar_dagster.sinks.matching import (
    Target,
    check_distinct,
    check_may_add,
    check_not_computed,
    check_required,
    columns_for,
    match,
    unfit,
)
from laminar_dagster.sinks.mysql.catalogue import (
    ExistingColumn,
    ExistingTable,
    look_up,
    may_alter,
    may_create,
    may_delete,
    may_make_temporary,
)
from laminar_dagster.sinks.mysql.columns import (
    MysqlColumn,
    encoder_for,
    type_for,
    without_final_spaces,
)

# Temporary tables for an epoch's rows and keys. They hide permanent tables of the same name.
STAGED_ROWS: Final = "_laminar_rows"
STAGED_KEYS: Final = "_laminar_keys"

# InnoDB's limit of an index, in bytes; a character has up to four. A part is limited too.
_LONGEST_KEY: Final = 3072
_LONGEST_PART: Final = 255
# An upper bound on the bytes of a number or time.
_FIXED_PART: Final = 40
# Collations that distinguish all strings, and one that ignores trailing spaces.
_EXACT: Final = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
_PADDED: Final = "utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class Fit:
    """How the columns of a view are written to the table.

    Attributes:
        statement: The ``CREATE`` or ``ALTER`` to run first; None if none is needed.
        deletes: Whether the view has retractions, so that rows may be deleted.
    """

    columns: tuple[MysqlColumn, ...]
    statement: str | None
    deletes: bool


def fit(session: Session, target: Target, schema: pa.Schema, collation: str) -> Fit:
    """Match the columns with the table. Changes nothing.

    Args:
        session: The session, which may be inside a transaction.
        target: The table.
        schema: The columns of the view.
        collation: The collation of new text columns.

    Raises:
        Unwritable: The table cannot hold the columns; says why.
        InvalidName: MySQL does not allow a column's name.
    """
    fields = columns_for(target, schema, identifier)
    deletes = bool(target.key) and WEIGHT in schema.names
    existing = look_up(session, target.table)
    if existing is None:
        return Fit(*_new_table(target, fields, collation), deletes)
    columns, missing = match(
        fields, lambda field: _fitted(target, existing, field), lambda field: _made(target, field)
    )
    check_distinct((column.name, column.target.casefold()) for column in columns)
    _check_granted(target, existing, columns)
    check_may_add(target, (column.target for column in missing))
    required = (there.name for there in existing.columns.values() if there.is_required)
    check_required(target.table, required, (column.target for column in columns))
    if target.key:
        _check_unique(target, existing, columns)
    return Fit(tuple(columns), _addition(target, missing, collation), deletes)


def check_rights(session: Session, target: Target, found: Fit) -> None:
    """Check that this account has all privileges that are needed. Changes nothing.

    Call it outside of a transaction, which it would commit.

    Raises:
        Unwritable: A privilege is missing; says what to grant.
    """
    table, statement = target.table, found.statement or ""
    is_new, grows = statement.startswith("CREATE"), statement.startswith("ALTER")
    needs: tuple[tuple[bool, Callable[[Session, str], bool], str, str], ...] = (
        (is_new, may_create, "there is no such table, and this account may not make it", "CREATE"),
        (grows, may_alter, "columns are missing, and this account may not add them", "ALTER"),
        (found.deletes and not is_new, may_delete, "this account may not delete rows", "DELETE"),
    )
    for is_needed, is_allowed, problem, right in needs:
        if is_needed and not is_allowed(session, table):
            raise Unwritable(f"table `{table}`: {problem}; GRANT {right} ON {quoted(table)} TO …")
    if target.key and not may_make_temporary(session, STAGED_ROWS):
        raise Unwritable(
            "this account may not make temporary tables, which mode `upsert` needs;"
            " GRANT CREATE TEMPORARY TABLES ON … TO …"
        )


def _fitted(target: Target, existing: ExistingTable, field: pa.Field) -> MysqlColumn | None:
    """The existing column for a field; None if the table has none."""
    there = existing.column(target.name_of(field.name))
    if there is None:
        return None
    where = f"column `{there.name}` of table `{target.table}`"
    check_not_computed(where, there.is_generated)
    found = encoder_for(field, there.type)
    if found is None:
        shown = there.type.shown
        if there.type.charset not in (None, "utf8mb4"):
            shown += f" CHARACTER SET {there.type.charset}"
        made = type_for(field)
        better = made.shown + (" CHARACTER SET utf8mb4" if made.charset else "")
        raise unfit(where, shown, field.type, better)
    encode, form = found
    if field.name in target.key and there.type.is_text:
        _check_collation(where, there)
        if there.type.collation == _PADDED:
            encode = without_final_spaces(encode)
    return MysqlColumn(field.name, there.name, there.type, encode, form)


def _check_collation(where: str, there: ExistingColumn) -> None:
    if there.type.collation not in (*_EXACT, _PADDED):
        raise Unwritable(
            f"{where} is part of the key, and its collation {there.type.collation} takes"
            f" different texts for one; make it COLLATE {' or '.join(_EXACT)}"
        )


def _made(target: Target, field: pa.Field) -> MysqlColumn:
    kind = type_for(field)
    found = encoder_for(field, kind)
    assert found is not None, "a type's own column takes it"
    return MysqlColumn(field.name, target.name_of(field.name), kind, *found)


def _check_granted(target: Target, existing: ExistingTable, columns: Sequence[MysqlColumn]) -> None:
    wanted = ("insert", "select", "update") if target.key else ("insert",)
    ours = [there for column in columns if (there := existing.column(column.target)) is not None]
    lacking = [
        right.upper() for right in wanted if not all(right in there.rights for there in ours)
    ]
    if lacking:
        rights = ", ".join(lacking)
        raise Unwritable(
            f"this account may not {rights} on table `{target.table}`; grant it:"
            f" GRANT {rights} ON {quoted(target.table)} TO …"
        )


def _check_unique(target: Target, existing: ExistingTable, columns: Sequence[MysqlColumn]) -> None:
    """Check that the key is unique in the table, and that no other index can match in an upsert."""
    written = {column.target for column in columns}
    key = frozenset(column.target for column in columns if column.name in target.key)
    if not any(index.is_whole and index.columns == key for index in existing.unique):
        names = listed([column.target for column in columns if column.name in target.key])
        raise Unwritable(
            f"the key of table `{target.table}` is not unique; make it so:"
            f" ALTER TABLE {quoted(target.table)} ADD UNIQUE ({names})"
        )
    numbered = {
        column.name
        for column in existing.columns.values()
        if column.is_numbered and column.name not in written
    }
    for index in existing.unique:
        # Rows that conflict in a superset of the key conflict in the key as well, and a generated
        # AUTO_INCREMENT value never conflicts.
        if (index.is_whole and index.columns >= key) or index.columns & numbered:
            continue
        raise Unwritable(
            f"table `{target.table}` has another unique key, `{index.name}`: a row that meets"
            " it would replace the row of another key; drop it, or make it the key"
        )


def _addition(target: Target, missing: Sequence[MysqlColumn], collation: str) -> str | None:
    if not missing:
        return None
    added = ", ".join(f"ADD COLUMN {_declaration(column, collation)}" for column in missing)
    return f"ALTER TABLE {quoted(target.table)} {added}"


def _new_table(
    target: Target, fields: Sequence[pa.Field], collation: str
) -> tuple[tuple[MysqlColumn, ...], str]:
    if not target.create:
        raise Unwritable(f"there is no table `{target.table}`; make it, or set create = 'true'")
    lengths = _key_lengths(target, fields)
    columns = []
    for field in fields:
        kind = type_for(field, lengths.get(field.name))
        found = encoder_for(field, kind)
        assert found is not None, "a type's own column takes it"
        columns.append(MysqlColumn(field.name, target.name_of(field.name), kind, *found))
    check_distinct((column.name, column.target.casefold()) for column in columns)
    parts = [
        _declaration(column, collation) + (" NOT NULL" if column.name in target.key else "")
        for column in columns
    ]
    if target.key:
        parts.append(f"PRIMARY KEY ({listed([target.name_of(name) for name in target.key])})")
    # IF NOT EXISTS: another committer may create it meanwhile; the table is then checked again.
    statement = (
        f"CREATE TABLE IF NOT EXISTS {quoted(target.table)} ({', '.join(parts)})"
        f" ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"
    )
    return tuple(columns), statement


def _key_lengths(target: Target, fields: Sequence[pa.Field]) -> dict[str, int]:
    """The maximum length of each string or binary column of a new key, to fit InnoDB's limit."""
    key = [field for field in fields if field.name in target.key]
    varying = [field.name for field in key if _varies(field.type)]
    if not varying:
        return {}
    room = _LONGEST_KEY - _FIXED_PART * (len(key) - len(varying))
    return dict.fromkeys(varying, max(1, min(_LONGEST_PART, room // (4 * len(varying)))))


def _varies(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_string(plain) or is_binary(plain)


def _declaration(column: MysqlColumn, collation: str) -> str:
    # No injection: `shown` is one of the texts that `type_for` makes.
    text = f" CHARACTER SET utf8mb4 COLLATE {collation}" if column.type.charset else ""
    return f"{quoted(column.target)} {column.type.shown}{text}"

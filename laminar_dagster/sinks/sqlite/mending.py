"""Generate SQL that converts columns with decimals as text to columns with numbers.

Users run it with any client, and many clients go on after an error. So all of it is one transaction
that the first value without an exact number rolls back, and every statement after that fails,
because the renamed tables and columns have their old names again.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from laminar_dagster.sinks.sqlite.decimals import DIGITS, LARGEST_POWER
from laminar_dagster.sinks.sqlite.identifiers import lower, quote
from laminar_dagster.sinks.sqlite.triggers import keywords

# Clauses of a table's definition that its list of names and types does not show.
_MORE: Final = re.compile(
    r"\b(AS|AUTOINCREMENT|CHECK|COLLATE|CONFLICT|DEFAULT|FOREIGN|GENERATED|REFERENCES|STRICT"
    r"|UNIQUE|VIRTUAL|WITHOUT)\b",
    re.IGNORECASE,
)
_ELSE: Final = "set decimals = 'text' to go on with text"
_COLUMNS: Final = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid'
# Renaming a column or a table rewrites the views and triggers that name it: drop and recreate them.
_DEPENDING: Final = """
    SELECT type, name, sql FROM main.sqlite_master
    WHERE (type IN ('view', 'trigger') OR (type = 'index' AND tbl_name = ?)) AND sql IS NOT NULL
    ORDER BY type = 'trigger', rowid
"""
_UNIQUE: Final = """
    SELECT part.name FROM pragma_index_list(?1) AS list, pragma_index_info(list.name) AS part
"""


def way_out(
    connection: sqlite3.Connection, table: str, definition: str, columns: dict[str, pa.DataType]
) -> str:
    """Advice for a table whose columns hold decimals as text, with SQL to convert it if possible.

    Args:
        connection: A connection to its database.
        table: The table's name.
        definition: Its ``CREATE TABLE`` statement.
        columns: The view's types of these columns, by the table's column names.
    """
    described = connection.execute(_COLUMNS, (table,)).fetchall()
    indexed = {lower(name) for (name,) in connection.execute(_UNIQUE, (table,)) if name}
    held = indexed | {lower(name) for name, _, _, place in described if place}
    is_strict = re.search(r"\bSTRICT\b", keywords(definition), re.IGNORECASE)
    if not held & {lower(name) for name in columns} and not is_strict:
        steps = _in_place(table, columns, {lower(each[0]) for each in described})
    elif not _MORE.search(keywords(definition)) and not _is_referred_to(connection):
        steps = _made_anew(connection, table, columns, described)
    else:
        return f"make the table anew with these columns NUMERIC, or {_ELSE}"
    depending = connection.execute(_DEPENDING, (table,)).fetchall()
    script = "\n".join(
        [
            # Not IMMEDIATE: if that failed, each statement would be a transaction of its own.
            "BEGIN;",
            # Triggers first: dropping a view drops its triggers.
            *(f"DROP {kind.upper()} {quote(name)};" for kind, name, _ in reversed(depending)),
            *steps,
            *(f"{statement};" for _, _, statement in depending),
            "COMMIT;",
        ]
    )
    return f"{_ELSE}, or run this SQL on the database, and then again:\n\n{script}"


def _is_referred_to(connection: sqlite3.Connection) -> bool:
    """Whether any table has foreign keys, whose references a rename would rewrite."""
    tables = connection.execute("SELECT sql FROM main.sqlite_master WHERE type = 'table'")
    return any("REFERENCES" in keywords(definition).upper() for (definition,) in tables)


def _in_place(table: str, columns: dict[str, pa.DataType], taken: set[str]) -> list[str]:
    """Add a numeric column for each text column, fill it, and drop the text column."""
    name, script, aside = quote(table), [], {}
    for column in columns:
        aside[column] = _free(f"{column}_text", taken)
        script += [
            f"ALTER TABLE {name} RENAME COLUMN {quote(column)} TO {quote(aside[column])};",
            f"ALTER TABLE {name} ADD COLUMN {quote(column)} NUMERIC;",
        ]
    values = [(quote(aside[column]), kind) for column, kind in columns.items()]
    changes = ", ".join(
        f"{quote(column)} = {_number(*value)}"
        for column, value in zip(columns, values, strict=True)
    )
    return [
        *script,
        *_guard(name, values),
        f"UPDATE {name} SET {changes};",
        "DROP TRIGGER temp.laminar_inexact;",
        *(f"ALTER TABLE {name} DROP COLUMN {value};" for value, _ in values),
    ]


def _made_anew(
    connection: sqlite3.Connection,
    table: str,
    columns: dict[str, pa.DataType],
    described: Sequence[tuple[str, str, int, int]],
) -> list[str]:
    """Create a new table with numeric columns, copy the rows, and drop the old table."""
    found = connection.execute("SELECT name FROM main.sqlite_master").fetchall()
    name = quote(table)
    before = quote(_free(f"{table}_text", {lower(each) for (each,) in found}))
    parts = [
        f"{quote(column)} {'NUMERIC' if column in columns else declared}{' NOT NULL' * required}"
        for column, declared, required, _ in described
    ]
    if key := [quote(each[0]) for each in sorted(described, key=lambda it: it[3]) if each[3]]:
        parts.append(f"PRIMARY KEY ({', '.join(key)})")
    names = ", ".join(quote(each[0]) for each in described)
    taken = ", ".join(
        _number(quote(each[0]), columns[each[0]]) if each[0] in columns else quote(each[0])
        for each in described
    )
    values = [(quote(column), kind) for column, kind in columns.items()]
    return [
        f"ALTER TABLE {name} RENAME TO {before};",
        f"CREATE TABLE {name} ({', '.join(parts)});",
        *_guard(before, values),
        # Changes no row: it fires the guard's trigger if there is an inexact one.
        f"UPDATE {before} SET {values[0][0]} = NULL WHERE NOT ({_all_exact(values)});",
        "DROP TRIGGER temp.laminar_inexact;",
        # Two texts of one number, such as 1.1 and 1.10, must not become one row.
        f"INSERT OR ROLLBACK INTO {name} ({names}) SELECT {taken} FROM {before};",
        f"DROP TABLE {before};",
    ]


def _guard(table: str, values: Sequence[tuple[str, pa.DataType]]) -> list[str]:
    """A temporary trigger that rolls the transaction back if a value has no exact number."""
    what = ", ".join(value.strip('"') for value, _ in values).replace("'", "''")
    problem = f"{what}: a value has no exact number in SQLite, so nothing was changed; {_ELSE}"
    text = problem.replace("decimals = 'text'", "decimals = ''text''")
    return [
        f"CREATE TEMP TRIGGER laminar_inexact BEFORE UPDATE ON main.{table}"
        f" WHEN NOT ({_all_exact(values, 'OLD.')})"
        f" BEGIN SELECT RAISE(ROLLBACK, '{text}'); END;",
    ]


def _all_exact(values: Sequence[tuple[str, pa.DataType]], row: str = "") -> str:
    return " AND ".join(_is_exact(row + value, kind.scale) for value, kind in values)


def _is_exact(text: str, scale: int) -> str:
    """A SQL condition: whether a text has an exact number, given the scale in the view."""
    known = [_is_whole(text, scale), f"CAST({text} AS REAL) = 0"]
    if 0 < scale <= LARGEST_POWER:
        digits = f"rtrim(ltrim(replace({text}, '.', ''), '-0'), '0')"
        known.append(f"substr({text}, -{scale + 1}, 1) = '.' AND length({digits}) <= {DIGITS}")
    # Needed because SQLite casts a text that is no number to 0.
    is_number = f"{text} <> '' AND ltrim({text}, '-+.E0123456789') = ''"
    return f"({text} IS NULL OR {is_number} AND ({' OR '.join(known)}))"


def _is_whole(text: str, scale: int) -> str:
    zeros = "." + "0" * scale if scale > 0 else ""
    return f"CAST({text} AS INTEGER) || '{zeros}' = {text}"


def _number(text: str, kind: pa.DataType) -> str:
    """A SQL expression: the number of an exact text.

    Dividing by a power of ten rounds once, as in the sink; SQLite's cast of a text is less exact.
    """
    whole = f"WHEN {_is_whole(text, kind.scale)} THEN CAST({text} AS INTEGER)"
    power = min(max(kind.scale, 0), LARGEST_POWER)
    fraction = f"CAST(replace({text}, '.', '') AS INTEGER) / 1e{power}"
    return f"CASE {whole} WHEN {text} IS NOT NULL THEN {fraction} END"


def _free(name: str, taken: set[str]) -> str:
    while lower(name) in taken:
        name += "_"
    taken.add(lower(name))
    return name

"""SQL that turns columns with the text of decimals into columns with numbers.

It is for people to run, with whatever they have, and many clients go on after an error. So all of
it is one transaction that is rolled back as a whole by the first value that has no exact number,
and every statement after that fails, because what it is about has another name again.
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

# What a list of names and types does not say about a table.
_MORE: Final = re.compile(
    r"\b(AS|AUTOINCREMENT|CHECK|COLLATE|CONFLICT|DEFAULT|FOREIGN|GENERATED|REFERENCES|STRICT"
    r"|UNIQUE|VIRTUAL|WITHOUT)\b",
    re.IGNORECASE,
)
_ELSE: Final = "set decimals = 'text' to go on with text"
_COLUMNS: Final = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid'
# To rename a column or a table rewrites every view and trigger that names it.
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
    """What to do about a table's columns with the text of decimals.

    Args:
        connection: To its database.
        table: Its name.
        definition: The statement that made it.
        columns: The view's types, by the table's names.
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
            # IMMEDIATE could fail, and then every statement would be a transaction of its own.
            "BEGIN;",
            # Those on a view go with it, so triggers come first.
            *(f"DROP {kind.upper()} {quote(name)};" for kind, name, _ in reversed(depending)),
            *steps,
            *(f"{statement};" for _, _, statement in depending),
            "COMMIT;",
        ]
    )
    return f"{_ELSE}, or run this SQL on the database, and then again:\n\n{script}"


def _is_referred_to(connection: sqlite3.Connection) -> bool:
    """Whether a table of the database refers to others, and would follow one that is renamed."""
    tables = connection.execute("SELECT sql FROM main.sqlite_master WHERE type = 'table'")
    return any("REFERENCES" in keywords(definition).upper() for (definition,) in tables)


def _in_place(table: str, columns: dict[str, pa.DataType], taken: set[str]) -> list[str]:
    """A column of numbers beside each one of text, which then goes."""
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
    """A table with numbers that takes the place of the one with text, which goes."""
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
        # Of every row that is exact nothing changes, and nothing is written.
        f"UPDATE {before} SET {values[0][0]} = NULL WHERE NOT ({_all_exact(values)});",
        "DROP TRIGGER temp.laminar_inexact;",
        # Two texts of one number, such as 1.1 and 1.10, must not become one row.
        f"INSERT OR ROLLBACK INTO {name} ({names}) SELECT {taken} FROM {before};",
        f"DROP TABLE {before};",
    ]


def _guard(table: str, values: Sequence[tuple[str, pa.DataType]]) -> list[str]:
    """Roll back whatever was done if a value has no exact number."""
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
    """Whether a text is that of a number, by the scale that the view gives it."""
    known = [_is_whole(text, scale), f"CAST({text} AS REAL) = 0"]
    if 0 < scale <= LARGEST_POWER:
        digits = f"rtrim(ltrim(replace({text}, '.', ''), '-0'), '0')"
        known.append(f"substr({text}, -{scale + 1}, 1) = '.' AND length({digits}) <= {DIGITS}")
    # SQLite takes a text that is no number for 0.
    is_number = f"{text} <> '' AND ltrim({text}, '-+.E0123456789') = ''"
    return f"({text} IS NULL OR {is_number} AND ({' OR '.join(known)}))"


def _is_whole(text: str, scale: int) -> str:
    zeros = "." + "0" * scale if scale > 0 else ""
    return f"CAST({text} AS INTEGER) || '{zeros}' = {text}"


def _number(text: str, kind: pa.DataType) -> str:
    """The number of a text that is exact.

    To divide by a power of ten rounds once, as the sink does; SQLite reads a text less exactly.
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

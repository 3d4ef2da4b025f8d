"""Refuse triggers that would change the rows that a sink writes.

If a trigger drops a row, SQLite's count of changed rows shows it. Changes by a trigger's own
statements are not in that count. But SQLite reports, when it compiles a statement, all actions of
that statement and of the triggers it fires, so nothing has to be executed to find them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.sqlite.identifiers import lower

_CHANGES: Final = {
    sqlite3.SQLITE_INSERT: "add rows to",
    sqlite3.SQLITE_DELETE: "delete rows of",
}
# Strings, quoted names and comments, which contain no keywords.
_QUOTED: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_LENIENT: Final = re.compile(r"\bON\s+CONFLICT\s+(IGNORE|REPLACE)\b", re.IGNORECASE)


def keywords(definition: str) -> str:
    """A statement without its strings, quoted names and comments."""
    return _QUOTED.sub(" ", definition)


def check_triggers(
    connection: sqlite3.Connection,
    table: str,
    definition: str,
    statements: Sequence[tuple[str, int]],
    columns: Sequence[str],
) -> None:
    """Refuse a table with triggers that would make it hold other rows than the view.

    Args:
        connection: A connection to its database. Nothing is changed.
        table: The table's name.
        definition: Its ``CREATE TABLE`` statement.
        statements: The sink's statements, and the number of parameters of each.
        columns: The table's columns that the view has.

    Raises:
        Unwritable: Says which trigger, and what it may do.
    """
    if found := _LENIENT.search(keywords(definition)):
        raise Unwritable(
            f"table `{table}` is made with ON CONFLICT {found[1].upper()}, which drops rows in"
            " silence, and has triggers, whose own clauses would not hold if that one was"
            " overridden; make the table without the clause, or drop its triggers"
        )
    ours = {lower(column) for column in columns}
    for statement, parameters in statements:
        for action, changed, column, trigger in _actions(connection, statement, parameters):
            if lower(changed) != lower(table):
                continue
            if what := _CHANGES.get(action):
                problem = f"may {what} table `{table}`"
            elif action == sqlite3.SQLITE_UPDATE and lower(column) in ours:
                problem = f"may change column `{column}` of table `{table}`"
            else:
                continue
            raise Unwritable(
                f"trigger `{trigger}` {problem} when the sink writes, so that the table would not"
                " hold what the view says; drop the trigger, or let it write elsewhere"
            )


def _actions(
    connection: sqlite3.Connection, statement: str, parameters: int
) -> list[tuple[int, str, str, str]]:
    """The actions of triggers that a statement fires: action code, table, column, trigger."""
    found: list[tuple[int, str, str, str]] = []

    def note(
        action: int, table: str | None, column: str | None, _database: str | None, by: str | None
    ) -> int:
        if by is not None and table is not None:
            found.append((action, table, column or "", by))
        return sqlite3.SQLITE_OK

    with _authorizer(connection, note):
        connection.execute(f"EXPLAIN {statement}", (None,) * parameters).close()
    return found


@contextmanager
def _authorizer(connection: sqlite3.Connection, note: object) -> Iterator[None]:
    connection.set_authorizer(note)  # type: ignore[arg-type]
    try:
        yield
    finally:
        connection.set_authorizer(None)

"""Statements in a row-based log: transaction boundaries, and changes to whole tables.

A table that is truncated, dropped or renamed loses its rows without a change event for each, and
so does a table when one of its partitions is dropped or exchanged. Such statements are found by
their words: only statements that name a table of the source are examined.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

# A table, by its database and its name.
TableName = tuple[str, str]

# SQL modes that change how a statement is tokenized.
_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
# The session variables in an event begin with these two codes; the sizes of their values.
_FLAGS, _SQL_MODE, _FLAGS_SIZE, _SQL_MODE_SIZE = 0, 1, 4, 8
_HEAD: Final = 13
# The additional header of LOAD DATA: the file, and where its name stands in the statement.
_LOAD_HEAD: Final = 13


def _token(*, escapes: bool) -> re.Pattern[str]:
    """The tokens of a statement. Of an executable comment, only the delimiters are skipped."""

    def up_to(quote: str) -> str:
        rest = r"\\]|\\.|" if escapes else "]|"
        return f"(?:[^{quote}{rest}{quote}{quote})*"

    single, double = up_to("'"), up_to('"')
    return re.compile(
        r"/\*(?!M?!).*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*|/\*M?!\d*"
        rf"|`(?P<quoted>(?:[^`]|``)+)`|'{single}'"
        rf'|"(?P<double>{double})"|(?P<word>[\w$]+)|(?P<sign>[.,()=])',
        re.DOTALL,
    )


_TOKEN: Final = _token(escapes=True)
_TOKEN_WITHOUT_ESCAPES: Final = _token(escapes=False)
_LOSES_PARTITIONS: Final = frozenset(
    {"DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "COALESCE", "CONVERT"}
)
_WRITES: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "MERGE", "CALL", "WITH", "DO"}
)


class Effect(Enum):
    """What a statement does to the rows of a table, or to its transaction."""

    NONE = "none"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    WITHIN = "within a transaction"
    MARKS = "a savepoint"
    UNDOES = "back to a savepoint"
    COMPLETES = "a prepared transaction was committed (XA)"
    DEFINES = "its definition was changed"
    EMPTIES = "it was emptied (TRUNCATE)"
    REMOVES = "it was dropped, renamed or replaced"
    PARTITIONS = "a partition of it was dropped, emptied or exchanged"
    WRITES = "it was written to by a statement (binlog_format is not ROW)"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was logged.

    Attributes:
        schema: The default database of its session.
        sql_mode: The SQL modes of its session; None if they are not known.
    """

    schema: str
    text: str
    sql_mode: int | None = None


def statement_in(body: bytes, *, is_load: bool = False) -> Statement:
    """Parse the statement of a QUERY event, or of one for LOAD DATA."""
    schema_size = body[8]
    begin = _HEAD + _LOAD_HEAD if is_load else _HEAD
    at = begin + int.from_bytes(body[11:13], "little")
    schema = body[at : at + schema_size].decode("utf-8", "replace")
    text = body[at + schema_size + 1 :].decode("utf-8", "replace")
    return Statement(schema, text, _sql_mode(body[begin:at]))


def _sql_mode(told: bytes) -> int | None:
    at = 1 + _FLAGS_SIZE if told[:1] == bytes([_FLAGS]) else 0
    end = at + 1 + _SQL_MODE_SIZE
    if told[at : at + 1] != bytes([_SQL_MODE]) or len(told) < end:
        return None
    return int.from_bytes(told[at + 1 : end], "little")


def effect_of(
    statement: Statement, tables: Collection[TableName]
) -> tuple[Effect, TableName | None]:
    """The effect of a statement, and the table of ours that it affects."""
    text = statement.text
    frame = _FRAMES.get(text[:20].upper().rstrip(" ;"))
    if frame is not None:
        return frame, None
    tokens = _tokens(statement)
    if not tokens:
        return Effect.NONE, None
    first = tokens[0][0].upper()
    words = [word.upper() for word, is_name in tokens if not is_name]
    if first in _SAVEPOINTS or words[:2] == ["ROLLBACK", "TO"]:
        return _SAVEPOINTS.get(first, Effect.UNDOES), None
    if first == "XA":
        return _XA.get(words[1], Effect.NONE) if words[1:] else Effect.NONE, None
    if first == "DROP" and words[1:2] and words[1] in ("DATABASE", "SCHEMA"):
        dropped = {word.casefold() for word, _ in tokens[2:]}
        gone = next((each for each in tables if each[0].casefold() in dropped), None)
        return (Effect.REMOVES if gone else Effect.NONE), gone
    named = _named(tokens, statement.schema, tables)
    if named is None:
        return Effect.NONE, None
    return _effect(first, words), named


def savepoint_in(statement: Statement) -> str:
    """The savepoint that a statement names, case-insensitive as on the server."""
    return _tokens(statement)[-1][0].casefold()


def _effect(first: str, words: list[str]) -> Effect:
    match first:
        case "TRUNCATE":
            return Effect.EMPTIES
        case "DROP" if "TABLE" in words[:3]:
            return Effect.REMOVES
        case "RENAME":
            return Effect.REMOVES
        case "CREATE" if "TABLE" in words[:4]:
            return Effect.REMOVES if "REPLACE" in words[:3] else Effect.DEFINES
        case "ALTER" if "TABLE" in words[:4]:
            return _altered(words)
    return Effect.WRITES if first in _WRITES else Effect.NONE


def _altered(words: list[str]) -> Effect:
    pairs = list(pairwise(words))
    if any(one in _LOSES_PARTITIONS and two == "PARTITION" for one, two in pairs):
        return Effect.PARTITIONS
    # Renamed columns and indexes are seen in the table's next description in the log.
    kept = ("COLUMN", "INDEX", "KEY", "PARTITION")
    if any(one == "RENAME" and two not in kept for one, two in pairs) or words[-1] == "RENAME":
        return Effect.REMOVES
    return Effect.DEFINES


def _named(
    tokens: list[tuple[str, bool]], schema: str, tables: Collection[TableName]
) -> TableName | None:
    """The first of our tables that a statement names, qualified by its database or not."""
    by_name = {name.casefold(): (database, name) for database, name in tables}
    for at, (word, _) in enumerate(tokens):
        if word.casefold() not in by_name:
            continue
        is_qualified = at >= 2 and tokens[at - 1][0] == "."
        database = tokens[at - 2][0] if is_qualified else schema
        found = next(
            (
                each
                for each in tables
                if (each[0].casefold(), each[1].casefold())
                == (database.casefold(), word.casefold())
            ),
            None,
        )
        if found is not None:
            return found
    return None


def _tokens(statement: Statement) -> list[tuple[str, bool]]:
    """The words, names and signs of a statement, and whether each can only be a name or a sign.

    String literals are left out. Double quotes enclose a literal or a name, by the session's SQL
    mode; a name, if the mode is not known.
    """
    mode = statement.sql_mode
    pattern = _TOKEN_WITHOUT_ESCAPES if mode and mode & _NO_BACKSLASH_ESCAPES else _TOKEN
    has_names = mode is None or bool(mode & _ANSI_QUOTES)
    found: list[tuple[str, bool]] = []
    for match in pattern.finditer(statement.text):
        if match["quoted"] is not None:
            found.append((match["quoted"].replace("``", "`"), True))
        elif match["double"] is not None and has_names:
            found.append((match["double"].replace('""', '"'), True))
        elif match["word"] is not None or match["sign"] is not None:
            found.append((match[0], match["sign"] is not None))
    return found


_FRAMES: Final = {
    "BEGIN": Effect.BEGIN,
    "START TRANSACTION": Effect.BEGIN,
    "COMMIT": Effect.COMMIT,
    "ROLLBACK": Effect.ROLLBACK,
}
_SAVEPOINTS: Final = {"SAVEPOINT": Effect.MARKS, "RELEASE": Effect.WITHIN}
# MySQL's statements around a prepared transaction, which ends with the XA_PREPARE event.
_XA: Final = {
    "START": Effect.BEGIN,
    "BEGIN": Effect.BEGIN,
    "END": Effect.WITHIN,
    "COMMIT": Effect.COMPLETES,
}

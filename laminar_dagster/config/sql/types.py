"""Column types, as Spark's ``simpleString`` spells them, such as ``array<string>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import TokenType

from laminar_dagster.config.mistakes import nearest
from laminar_dagster.config.sql.cursor import Cursor
from laminar_dagster.config.sql.text import quoted

_SIMPLE: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "BYTE": "tinyint",
    "SMALLINT": "smallint",
    "SHORT": "smallint",
    "INT": "int",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "LONG": "bigint",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DOUBLE PRECISION": "double",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "STRING": "string",
    "TEXT": "string",
    "BINARY": "binary",
    "BYTES": "binary",
    "VARIANT": "variant",
}
_SIZED: Final = ("VARCHAR", "CHAR", "CHARACTER")
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
_NESTED: Final = ("ARRAY", "MAP", "STRUCT", "ROW")
_KNOWN: Final = (*_SIMPLE, *_SIZED, *_DECIMALS, *_NESTED)
_MAX_PRECISION: Final = 38
_MAX_NESTING: Final = 20

TIMESTAMPS: Final = frozenset({"timestamp", "timestamp_ntz"})


def read_type(cursor: Cursor, depth: int = 0) -> str:
    """Read a type, and step over it."""
    where, word = cursor.where, cursor.word()
    if depth > _MAX_NESTING:
        cursor.fail(f"a type is nested more than {_MAX_NESTING} deep")
    if word not in _KNOWN:
        suggestion = nearest(word, _KNOWN, "types are those of Spark SQL, such as BIGINT or STRING")
        cursor.fail(f"{cursor.shown()} is not a type", suggestion)
    cursor.index += 1
    if word in _SIMPLE:
        _refuse_size(cursor, word)
        return _SIMPLE[word]
    if word in _SIZED:
        # The length of VARCHAR(n) is dropped: Spark computes with STRING. A contract can check it.
        if cursor.accept("("):
            _number(cursor)
            cursor.expect(")")
        return "string"
    if word in _DECIMALS:
        return _decimal(cursor, where)
    return _nested(cursor, word, depth)


def _refuse_size(cursor: Cursor, word: str) -> None:
    if cursor.word() == "(":
        cursor.fail(f"{word} takes no size", "Spark keeps microseconds; leave the parentheses out")


def _decimal(cursor: Cursor, where: str) -> str:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = _number(cursor)
        if cursor.accept(","):
            scale = _number(cursor)
        cursor.expect(")")
    if not 1 <= precision <= _MAX_PRECISION or scale > precision:
        cursor.fail(
            f"DECIMAL({precision}, {scale}) is not possible",
            f"at most {_MAX_PRECISION} digits, and no more of them after the point",
            where,
        )
    return f"decimal({precision},{scale})"


def _nested(cursor: Cursor, word: str, depth: int) -> str:
    if not cursor.accept("<"):
        cursor.fail(f"{word} needs its types in <…>, such as {_EXAMPLES[word]}")
    if word == "ARRAY":
        inside = read_type(cursor, depth + 1)
        kind = "array"
    elif word == "MAP":
        key = read_type(cursor, depth + 1)
        cursor.expect(",")
        inside = f"{key},{read_type(cursor, depth + 1)}"
        kind = "map"
    else:
        inside = _fields(cursor, depth)
        kind = "struct"
    _close(cursor)
    return f"{kind}<{inside}>"


_EXAMPLES: Final = {
    "ARRAY": "ARRAY<STRING>",
    "MAP": "MAP<STRING, BIGINT>",
    "STRUCT": "STRUCT<id: BIGINT, name: STRING>",
    "ROW": "STRUCT<id: BIGINT, name: STRING>",
}


def _fields(cursor: Cursor, depth: int) -> str:
    fields: list[str] = []
    seen: set[str] = set()
    while True:
        name = cursor.name("a field")
        if name.text.lower() in seen:
            cursor.fail(f"the field `{name.text}` stands here twice", where=name.where)
        seen.add(name.text.lower())
        cursor.accept(":")
        fields.append(f"{quoted(name.text)}:{read_type(cursor, depth + 1)}")
        if cursor.accept("NOT"):
            cursor.fail("a field cannot be NOT NULL", "leave it out; a contract can check it")
        if not cursor.accept(","):
            return ",".join(fields)


def _close(cursor: Cursor) -> None:
    cursor.expect(">")


def _number(cursor: Cursor) -> int:
    token = cursor.token
    if token is None or token.token_type != TokenType.NUMBER or not token.text.isdigit():
        cursor.fail(f"a number is expected here, not {cursor.shown()}")
    cursor.index += 1
    return int(token.text[:9])

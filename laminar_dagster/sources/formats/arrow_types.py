"""Parses Spark SQL types, as text, into Arrow types.

The Arrow types are those that Spark uses when it converts columns: timestamps in UTC with
microseconds, 32-bit dates, 128-bit decimals.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from laminar_dagster.config.model import Column

MAX_DEPTH: Final = 32
MAX_PRECISION: Final = 38

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL: Final = frozenset({"decimal", "dec", "numeric"})
_TEXT_OF_LENGTH: Final = frozenset({"varchar", "char", "character"})
_KNOWN: Final = (*_SIMPLE, "decimal", "varchar", "char", "array", "map", "struct")

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_]\w*)|(\d+)|([<>(),:]))")


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a source's declared columns.

    Raises:
        ValueError: A column's type is unknown, or two columns share a name.
    """
    fields: dict[str, pa.Field] = {}
    for column in columns:
        if column.name in fields:
            raise ValueError(f"column `{column.name}` is declared twice")
        try:
            kind = arrow_type(column.type)
        except ValueError as error:
            raise ValueError(f"column `{column.name}`: {error}") from None
        fields[column.name] = pa.field(column.name, kind, nullable=column.nullable)
    if not fields:
        raise ValueError("it declares no columns")
    return pa.schema(list(fields.values()))


def arrow_type(text: str) -> pa.DataType:
    """Read a type as Spark SQL spells it, such as ``array<decimal(10, 2)>``.

    Raises:
        ValueError: The type is not supported; says what is wrong.
    """
    parser = _Parser(text)
    kind = parser.type(0)
    parser.end()
    return kind


class _Parser:
    """A recursive descent parser over the tokens of one type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def type(self, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise ValueError(f"the type is nested more than {MAX_DEPTH} deep")
        name = self._word("a type").lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        if name in _TEXT_OF_LENGTH:
            self._expect("(")
            self._number()
            self._expect(")")
            return pa.string()
        if name == "array":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return pa.list_(pa.field("element", element))
        if name == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            if pa.types.is_nested(key):
                raise ValueError("a map's key must be a plain type")
            return pa.map_(key, value)
        if name == "struct":
            return self._struct(depth)
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f", did you mean `{near[0]}`?" if near else f"; known types: {', '.join(_KNOWN)}"
        raise ValueError(f"unknown type `{name}`{hint}")

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise ValueError(f"unexpected `{self._tokens[self._next]}` in type `{self._text}`")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._expect(")")
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            raise ValueError(f"decimal({precision}, {scale}) is out of range")
        return pa.decimal128(precision, scale)

    def _struct(self, depth: int) -> pa.DataType:
        self._expect("<")
        fields: dict[str, pa.Field] = {}
        while not self._take(">"):
            if fields:
                self._expect(",")
            name = self._word("a field's name")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            self._take(":")
            kind = self.type(depth + 1)
            if self._take("not"):
                raise ValueError(f"field `{name}`: NOT NULL is for columns, not for fields")
            if name in fields:
                raise ValueError(f"field `{name}` is declared twice")
            fields[name] = pa.field(name, kind)
        if not fields:
            raise ValueError("a struct without fields")
        return pa.struct(list(fields.values()))

    def _word(self, what: str) -> str:
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        if not token or not (token[0] in "`_" or token[0].isalpha()):
            raise ValueError(f"{what} is missing before `{token}` in type `{self._text}`")
        self._next += 1
        return token

    def _number(self) -> int:
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        if not token.isdigit() or len(token) > 9:
            raise ValueError(f"a number is missing before `{token}` in type `{self._text}`")
        self._next += 1
        return int(token)

    def _take(self, token: str) -> bool:
        here = self._next < len(self._tokens) and self._tokens[self._next].lower() == token
        self._next += here
        return here

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise ValueError(f"`{token}` is missing in type `{self._text}`")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    text = text.rstrip()
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise ValueError(f"unexpected `{text[place:].strip()[:1]}` in type `{text}`")
        tokens.append(found.group().strip())
        place = found.end()
    return tokens

"""A file of SQL: its statements as tokens, places in it, and pieces of it as canonical text.

Canonical text is what the author wrote with comments and white space evened out, keywords in upper
and functions in lower case, and some tokens replaced (columns by their declared names). It is never
generated from a tree, so it means to Spark what it meant in the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from sqlglot import Token, TokenType
from sqlglot.errors import TokenError

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.sql.dialect import Span, StreamDialect
from laminar_dagster.config.sql.functions import UNITS, WITHOUT_PARENTHESES

# sqlglot makes about eighteen nested calls for each level, and Python allows a thousand.
MAX_DEPTH: Final = 32
MAX_TOKENS: Final = 200_000

_OPENING: Final = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING: Final = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_TIGHT_BEFORE: Final = {
    TokenType.COMMA,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.L_BRACKET,
    TokenType.DOT,
}
_TIGHT_AFTER: Final = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.DOT}
_AS_WRITTEN: Final = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.HEX_STRING,
    TokenType.NATIONAL_STRING,
    TokenType.NUMBER,
}
_DOUBLED: Final = {TokenType.STRING, TokenType.GT, TokenType.LT}
# Keywords that sqlglot reads as names. The caller says which tokens are real names (`verbatim`).
_SOFT_KEYWORDS: Final = frozenset(
    {*UNITS, *(f"{each}s" for each in UNITS), "both", "leading", "trailing"}
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MISSING: Final = re.compile(r"Missing (\S+) from (\d+):(\d+)")

Edits = Mapping[int, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a file. Empty ones are left out."""

    sql: SqlText
    tokens: Sequence[Token]

    @property
    def start(self) -> int:
        """The offset at which it begins."""
        return self.tokens[0].start

    def offset(self, index: int) -> int:
        """The offset of a token; after the last token, the offset of the statement's end."""
        if index < len(self.tokens):
            return self.tokens[index].start
        return self.tokens[-1].end + 1

    def where(self, index: int = 0) -> str:
        """The place of a token."""
        return self.sql.where(self.offset(index))

    def raw(self, start: int, end: int) -> str:
        """Tokens as they are written, comments between them included."""
        if start >= end:
            return ""
        return self.sql.text[self.tokens[start].start : self.tokens[end - 1].end + 1]

    def part(self, start: int, end: int) -> Statement:
        """Some of its tokens, in the same file."""
        return Statement(self.sql, self.tokens[start:end])

    def find(self, kinds: Collection[TokenType], span: Span) -> int:
        """The first token of some kind outside inner brackets; else anywhere; else the start."""
        depth, anywhere = 0, -1
        for index in range(*span):
            kind = self.tokens[index].token_type
            if kind in kinds:
                if depth <= 0:
                    return index
                anywhere = index if anywhere < 0 else anywhere
            depth += (kind in _OPENING) - (kind in _CLOSING)
        return anywhere if anywhere >= 0 else span[0]

    def canonical(self, span: Span, edits: Edits, verbatim: Collection[int] = ()) -> str:
        """Canonical text of a range of tokens.

        Args:
            span: The range of tokens.
            edits: Replacements by first token: where each ends, and its text.
            verbatim: Tokens that keep their case although they look like a keyword.
        """
        pieces: list[str] = []
        index, tight, before = span[0], True, -1
        while index < span[1]:
            token = self.tokens[index]
            if token.start == before:
                # `1L` is three tokens with one place in the text.
                index += 1
                continue
            before = token.start
            end, text = edits.get(index, (index + 1, ""))
            if not text:
                text = self._spelled(index, verbatim)
            if pieces and not tight and not self._sticks(index):
                pieces.append(" ")
            pieces.append(text)
            last = self.tokens[end - 1]
            tight = last.token_type in _TIGHT_AFTER or self._is_call(end - 1)
            index = end
        return "".join(pieces)

    def _sticks(self, index: int) -> bool:
        """Whether a token follows the one before it without a space."""
        token, before = self.tokens[index], self.tokens[index - 1]
        # To Spark, 'it''s' is one string and 'it' 's' are two; >> is one operator, > > is none.
        doubled = token.token_type == before.token_type and token.token_type in _DOUBLED
        return token.token_type in _TIGHT_BEFORE or (doubled and token.start == before.end + 1)

    def _spelled(self, index: int, verbatim: Collection[int]) -> str:
        token = self.tokens[index]
        text = self.sql.text[token.start : token.end + 1]
        after_dot = index > 0 and self.tokens[index - 1].token_type == TokenType.DOT
        if index in verbatim or after_dot:
            return text
        if self._is_call(index):
            return text.lower()
        if token.token_type == TokenType.VAR and text.lower() in _SOFT_KEYWORDS:
            return text.upper()
        return text if token.token_type in _AS_WRITTEN else text.upper()

    def _is_call(self, index: int) -> bool:
        """Whether a name and its parenthesis touch: a call, or a type with its size."""
        token = self.tokens[index]
        following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
        return (
            following is not None
            and following.token_type == TokenType.L_PAREN
            and (following.start == token.end + 1 or token.token_type == TokenType.VAR)
            and _PLAIN_NAME.fullmatch(token.text) is not None
            and token.token_type not in (TokenType.IN, TokenType.AND, TokenType.OR, TokenType.NOT)
        )


class SqlText:
    """The text of a file, with lines and columns of offsets in it."""

    def __init__(self, file: str, text: str) -> None:
        """Take a file's name, for errors, and its content."""
        self.file = file
        self.text = text
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self._lines, offset)

    def where(self, offset: int) -> str:
        """An offset as ``file:line:column``."""
        line = self.line(offset)
        return f"{self.file}:{line}:{offset - self._lines[line - 1] + 1}"

    def statements(self, report: Report) -> Iterator[Statement]:
        """The statements of the file; text that cannot be split into tokens is a mistake."""
        try:
            tokens = StreamDialect().tokenize(self.text)
        except (TokenError, ValueError, RecursionError, IndexError) as error:
            self._report_unreadable(error, report)
            return
        if len(tokens) > MAX_TOKENS:
            report.add(self.file, f"it holds more than {MAX_TOKENS} words", "split the file")
            return
        current: list[Token] = []
        for token in tokens:
            if token.token_type == TokenType.SEMICOLON:
                if current:
                    yield from self._checked(current, report)
                current = []
            else:
                current.append(token)
        if current:
            yield from self._checked(current, report)

    def _checked(self, tokens: list[Token], report: Report) -> Iterator[Statement]:
        depth = 0
        for token in tokens:
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            if depth > MAX_DEPTH:
                where = self.where(token.start)
                report.add(where, f"it is nested more than {MAX_DEPTH} deep", "use a view")
                return
        yield Statement(self, tokens)

    def _report_unreadable(self, error: Exception, report: Report) -> None:
        # The message may quote the file, and so a secret; its cause names place and delimiter.
        found = _MISSING.search(f"{error} {error.__cause__}")
        if found:
            where = f"{self.file}:{found[2]}"
            report.add(where, f"a {found[1]} is never closed", f"close it with {found[1]}")
        else:
            report.add(self.file, "it is not SQL")


def quoted(name: str) -> str:
    """A name for Spark SQL: in backticks unless it is plain."""
    return name if _is_plain(name) else "`" + name.replace("`", "``") + "`"


@cache
def _is_plain(name: str) -> bool:
    if not _PLAIN_NAME.fullmatch(name) or name.lower() in WITHOUT_PARENTHESES:
        return False
    tokens = StreamDialect().tokenize(name)
    return len(tokens) == 1 and tokens[0].token_type == TokenType.VAR

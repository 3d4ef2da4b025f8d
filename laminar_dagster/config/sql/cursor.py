"""A cursor over a statement's tokens, to parse the statements that Spark does not know."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from sqlglot import Token, TokenType

from laminar_dagster.config.mistakes import nearest
from laminar_dagster.config.sql.syntax import Name
from laminar_dagster.config.sql.text import Statement

_WORD: Final = re.compile(r"\w+")
_MAX_SHOWN: Final = 40


class WrongSyntax(Exception):
    """A statement that cannot be read. Becomes a mistake; the other statements are still read."""

    def __init__(self, where: str, problem: str, suggestion: str = "") -> None:
        """Take the fields of a mistake."""
        super().__init__(problem)
        self.where, self.problem, self.suggestion = where, problem, suggestion


class Cursor:
    """Walks over the tokens of a statement."""

    def __init__(self, statement: Statement) -> None:
        """Begin at the first token."""
        self.statement = statement
        self.index = 0

    @property
    def token(self) -> Token | None:
        """The current token; None at the end."""
        tokens = self.statement.tokens
        return tokens[self.index] if self.index < len(tokens) else None

    @property
    def where(self) -> str:
        """The place of the current token."""
        return self.statement.where(self.index)

    @property
    def line(self) -> int:
        """The line of the current token."""
        return self.statement.sql.line(self.statement.offset(self.index))

    def word(self, ahead: int = 0) -> str:
        """The current token in upper case if it is an unquoted word; else empty."""
        tokens = self.statement.tokens
        if self.index + ahead >= len(tokens):
            return ""
        token = tokens[self.index + ahead]
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        # Some keywords are two words in one token: `ORDER BY`.
        return "" if quoted else token.text.upper()

    def accept(self, *words: str) -> bool:
        """Step over words if they are next."""
        if all(self.word(ahead) == each for ahead, each in enumerate(words)):
            self.index += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Step over words that must be next."""
        for each in words:
            if not self.accept(each):
                self.fail(
                    f"{each} is expected here, not {self.shown()}", nearest(self.word(), [each])
                )

    def expect_one_of(self, *words: str) -> str:
        """Step over the one of some words that is next."""
        for each in words:
            if self.accept(*each.split(" ")):
                return each
        choice = ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]
        return self.fail(
            f"{choice} is expected here, not {self.shown()}", nearest(self.word(), words)
        )

    def name(self, what: str) -> Name:
        """Step over a name of one part."""
        token, where, line = self.token, self.where, self.line
        if token is None:
            self.fail(f"the name of {what} is expected here, not {self.shown()}")
        if token.token_type == TokenType.STRING:
            self.fail(f"{self.shown()} is a text, not a name", "put names in `backticks`")
        if token.token_type != TokenType.IDENTIFIER and not _WORD.fullmatch(token.text):
            self.fail(f"the name of {what} is expected here, not {self.shown()}")
        self.index += 1
        following = self.token
        if following and following.token_type == TokenType.DOT:
            self.fail("a name has one part, without a catalog or a schema", "leave out the dot")
        if (
            following
            and following.token_type == TokenType.DASH
            and following.start == token.end + 1
        ):
            self.fail("a name with a dash needs backticks", f"write it as `{token.text}-…`")
        return Name(token.text, where, line)

    def expect_end(self) -> None:
        """Fail unless this is the end of the statement."""
        if self.token is not None:
            self.fail(
                f"the statement should end here, not go on with {self.shown()}", "a `;` ends it"
            )

    def shown(self) -> str:
        """The current token, for an error."""
        token = self.token
        if token is None:
            return "the end of the statement"
        # Never show a string: it may be a secret in the wrong place.
        if token.token_type == TokenType.STRING:
            return "a text in quotes"
        return f"`{token.text[:_MAX_SHOWN]}`"

    def skip_to(self, *kinds: TokenType) -> None:
        """Skip to a token of one of these kinds outside brackets, or to the closing bracket."""
        depth = 0
        while (token := self.token) is not None:
            if depth == 0 and token.token_type in (*kinds, TokenType.R_PAREN):
                return
            depth += token.token_type in (TokenType.L_PAREN, TokenType.LT)
            depth -= token.token_type in (TokenType.R_PAREN, TokenType.GT)
            self.index += 1

    def fail(self, problem: str, suggestion: str = "", where: str = "") -> NoReturn:
        """Give up on the statement."""
        raise WrongSyntax(where or self.where, problem, suggestion)

"""A construct of SQL that is not supported."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType


@dataclass(frozen=True, slots=True)
class Refusal:
    """A construct that is refused.

    Attributes:
        name: Its name to a user.
        instead: What to write or do instead.
        keywords: Tokens by which its place in a query is found: the first that occurs.
        example: A query over the tables of ``support.TABLES`` that is refused for it; empty if
            sqlglot cannot parse one.
        why: The predicate of the error's sentence, after the name.
    """

    name: str
    instead: str = ""
    keywords: tuple[TokenType, ...] = ()
    example: str = ""
    why: str = "is not supported yet"

    @property
    def problem(self) -> str:
        """The error that a user reads."""
        return f"{self.name} {self.why}"

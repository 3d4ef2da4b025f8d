"""A construct of SQL that a pipeline does not take."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType


@dataclass(frozen=True, slots=True)
class Refusal:
    """A construct that is refused.

    Attributes:
        name: As a user knows it.
        instead: What to write or do instead.
        keywords: By which of its tokens it is found in a query; the first that is there.
        example: A query over the tables of ``support.TABLES`` that is refused for it; empty where
            sqlglot's grammar for Spark has none.
        why: What is the matter with it.
    """

    name: str
    instead: str = ""
    keywords: tuple[TokenType, ...] = ()
    example: str = ""
    why: str = "is not supported yet"

    @property
    def problem(self) -> str:
        """What a user reads."""
        return f"{self.name} {self.why}"

"""Checks and quotes names for MySQL. All names in statements must be quoted here."""

from __future__ import annotations

from typing import Final

from laminar_dagster.clients.identifiers import require_identifier
from laminar_dagster.core.errors import InvalidName

# In characters, not bytes.
_LONGEST_NAME: Final = 64


def identifier(name: str) -> str:
    """Check that the server can store a name unchanged, and return it.

    Raises:
        InvalidName: The server cannot.
    """
    require_identifier(name)
    problem = ""
    if len(name) > _LONGEST_NAME:
        problem = f"is longer than {_LONGEST_NAME} characters"
    elif name.endswith(" "):
        problem = "ends with a space"
    elif any(character > "\uffff" for character in name):
        problem = "holds a character beyond U+FFFF"
    if problem:
        raise InvalidName("SQL identifier", repr(name)[1:-1][:200], problem)
    return name


def quoted(name: str) -> str:
    """A name quoted with backticks, for statements that take no parameters."""
    return f"`{identifier(name).replace('`', '``')}`"


def listed(names: list[str]) -> str:
    """Quoted names, separated by commas."""
    return ", ".join(map(quoted, names))

"""Names as MySQL takes them. Nothing else puts a name into a statement."""

from __future__ import annotations

from typing import Final

from laminar_dagster.clients.identifiers import require_identifier
from laminar_dagster.core.errors import InvalidName

# Characters, not bytes.
_LONGEST_NAME: Final = 64


def identifier(name: str) -> str:
    """A name that the server can hold as it is.

    Raises:
        InvalidName: It cannot.
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
    """A name to stand in a statement that takes no values."""
    return f"`{identifier(name).replace('`', '``')}`"


def listed(names: list[str]) -> str:
    """Names with commas between them."""
    return ", ".join(map(quoted, names))

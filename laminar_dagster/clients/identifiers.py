"""Names that a database can hold, whichever it is."""

from __future__ import annotations

import hashlib
from typing import Final

from laminar_dagster.core.errors import InvalidName

# Of a hash, so many digits: two names out of a million agree in none.
_DIGITS: Final = 16


def session_name(name: str, longest: int) -> str:
    """What a session is called, whole and told apart from every other by all of its characters.

    A server cuts longer names off, and writes others than those of ASCII as question marks: two
    would be one, and who ends the sessions of one would end those of the other.

    Args:
        name: Whose session it is.
        longest: How many bytes the server keeps.
    """
    kept = "".join(each if " " <= each <= "}" else "?" for each in name)
    if kept == name and len(name) <= longest:
        return name
    # No name holds a tilde, so none is called what another one is shortened to.
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{kept[: longest - _DIGITS - 1]}~{digest}"


def require_identifier(name: str, *, longest: int | None = None) -> str:
    """A name that can stand in SQL, quoted, and comes back as it is.

    Args:
        name: Of a table, a column or a schema.
        longest: How many bytes the database keeps of it.

    Raises:
        InvalidName: It cannot.
    """
    problem = ""
    if not name:
        problem = "is empty"
    elif "\0" in name:
        problem = "holds a NUL character"
    elif any("\ud800" <= character <= "\udfff" for character in name):
        problem = "is not valid Unicode"
    elif longest is not None and len(name.encode()) > longest:
        problem = f"is longer than {longest} bytes"
    if problem:
        raise InvalidName("SQL identifier", repr(name)[1:-1][:200], problem)
    return name

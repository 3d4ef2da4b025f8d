"""Names that every database can store."""

from __future__ import annotations

import hashlib
from typing import Final

from laminar_dagster.core.errors import InvalidName

# The digits kept of a hash: enough that among a million names no two collide.
_DIGITS: Final = 16


def session_name(name: str, longest: int) -> str:
    """A session's name that fits the server's limit, and is unique to ``name``.

    A server cuts longer names off, and replaces non-ASCII characters by question marks: then two
    names could become one, and terminating the sessions of one would terminate the other's.

    Args:
        name: The full name.
        longest: How many bytes the server keeps.
    """
    kept = "".join(each if " " <= each <= "}" else "?" for each in name)
    if kept == name and len(name) <= longest:
        return name
    # Unshortened names contain no tilde, so none equals a shortened one.
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{kept[: longest - _DIGITS - 1]}~{digest}"


def require_identifier(name: str, *, longest: int | None = None) -> str:
    """Check that a name can be used as a quoted SQL identifier, unchanged, and return it.

    Args:
        name: The name of a table, a column or a schema.
        longest: How many bytes of it the database keeps.

    Raises:
        InvalidName: The name cannot be used.
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

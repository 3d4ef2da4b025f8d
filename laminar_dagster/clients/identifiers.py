"""Names that a database can hold, whichever it is."""

from __future__ import annotations

from laminar_dagster.core.errors import InvalidName


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

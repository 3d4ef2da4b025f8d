"""Names of SQLite: how they are written, and how they are compared."""

from __future__ import annotations

from laminar_dagster.clients.identifiers import require_identifier


def quote(identifier: str) -> str:
    """An identifier as SQL. The only way by which a name gets into a statement.

    Raises:
        InvalidName: SQLite cannot hold it.
    """
    return '"' + require_identifier(identifier).replace('"', '""') + '"'


def lower(name: str) -> str:
    """As SQLite compares names: ASCII only."""
    return "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in name)

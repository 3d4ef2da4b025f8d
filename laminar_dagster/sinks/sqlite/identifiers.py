"""Quote SQLite's identifiers, and fold their case."""

from __future__ import annotations

from laminar_dagster.clients.identifiers import require_identifier


def quote(identifier: str) -> str:
    """Quote an identifier. All names in SQL statements go through here, against injection.

    Raises:
        InvalidName: SQLite does not allow the name.
    """
    return '"' + require_identifier(identifier).replace('"', '""') + '"'


def lower(name: str) -> str:
    """Lower the case of ASCII letters only, as SQLite compares names."""
    return "".join(chr(ord(each) + 32) if "A" <= each <= "Z" else each for each in name)

"""Declares a reference table as a pipeline's author would."""

from __future__ import annotations

from laminar_dagster.config.model import Column, Place, ReferenceTable
from laminar_dagster.core.ids import ReferenceId


def declared(
    connector: str, *, has_key: bool = True, column: str = "name", **options: str
) -> ReferenceTable:
    """A table of ``id`` and one more column; ``__`` in the name of an option stands for a dot."""
    given = {name.replace("__", "."): text for name, text in options.items()}
    return ReferenceTable(
        ReferenceId("fruit"),
        (Column("id", "int", nullable=False), Column(column, "string")),
        ("id",) if has_key else (),
        connector,
        given,
        Place("tables.sql", 3),
        given,
    )

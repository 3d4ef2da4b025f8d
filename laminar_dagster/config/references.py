"""Reads a ``CREATE REFERENCE TABLE`` into the engine's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import Column, ReferenceTable
from laminar_dagster.config.sql.column_types import declared_types
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.scope import Output
from laminar_dagster.config.sql.syntax import CreateReference, CreateSource, Name

REFRESH: Final = "refresh.interval"
ON_RETRACTION: Final = "on_retraction"
# Not comparable by value: 0.0 = -0.0, NaN, and nested types have no canonical text.
_UNFIT_FOR_KEYS: Final = ("float", "double", "real", "array", "map", "struct", "variant")


def check_column_names(name: Name, columns: Sequence[Column], report: Report) -> None:
    """Refuse names of columns that are not valid, or are reserved."""
    for column in columns:
        if is_reserved(column.name):
            problem = f"the column `{column.name[:80]}` of `{name.text}` has a reserved name"
            report.add(name.where, problem, "choose one that begins with a letter")
        elif not is_usable(column.name):
            report.add(name.where, f"`{name.text}` has a column without a usable name")


def is_reserved(column: str) -> bool:
    """Whether a column's name is reserved: it begins with ``_``, or names a window's edge."""
    return column.startswith("_") or column.lower() in WINDOW_COLUMNS


def is_usable(column: str) -> bool:
    """Whether a name is valid for a column."""
    return bool(column) and len(column) <= 200 and column.isprintable()


def reference_output(table: ReferenceTable) -> tuple[str, Output]:
    """A reference table as the queries see it."""
    cancels = table.options.get(REFRESH) == "never"
    is_accepted = table.options.get(ON_RETRACTION) == "join_current"
    names = tuple(each.name for each in table.columns)
    required = frozenset(each.name for each in table.columns if not each.nullable)
    reference: Literal["weighed", "unweighed"]
    reference = "weighed" if cancels or is_accepted else "unweighed"
    types = declared_types(table.columns)
    output = Output(names, required=required, reference=reference, types=types)
    return str(table.reference_id), output


def read_key(found: CreateReference | CreateSource, report: Report) -> tuple[str, ...]:
    """The PRIMARY KEY of a table, as its columns spell it."""
    columns = {each.name.lower(): each for each in found.columns}
    key: list[str] = []
    for each in found.key:
        column = columns.get(each.text.lower())
        if column is None:
            names = [one.name for one in found.columns]
            hint = nearest(each.text, names, listed(names, "columns"))
            report.add(each.where, f"the key names `{each.text[:80]}`, which is no column", hint)
        elif column.type.lower().startswith(_UNFIT_FOR_KEYS):
            hint = "take a whole number, a text, a date or a DECIMAL"
            report.add(each.where, f"a {column.type} such as `{column.name}` is no key", hint)
        elif column.name in key:
            report.add(each.where, f"the key names `{column.name}` twice")
        else:
            key.append(column.name)
    return tuple(key)


def columns_with_key(columns: Iterable[Column], key: Collection[str]) -> tuple[Column, ...]:
    """The columns of a reference table, those of its key NOT NULL: a null identifies no row."""
    return tuple(
        dataclasses.replace(each, nullable=each.nullable and each.name not in key)
        for each in columns
    )

"""Match the columns of a view with those of a table, for any database."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from laminar_dagster.sinks.changes import Unwritable, check_columns, stored_columns

C = TypeVar("C")


def name_in_table(renamed: Mapping[str, str], column: str) -> str:
    """The table's name for a column of the view."""
    folded = {name.casefold(): target for name, target in renamed.items()}
    return folded.get(column.casefold(), column)


@dataclass(frozen=True, slots=True)
class Target:
    """The table that rows are written to, and how.

    Attributes:
        key: The view's key columns in upsert mode; empty in append mode.
        create: Whether the table, and columns that it lacks, may be created.
        renamed: The table's column names by those of the view, where they differ.
    """

    table: str
    key: tuple[str, ...]
    create: bool
    renamed: Mapping[str, str]

    def name_of(self, column: str) -> str:
        """The table's name for a column of the view."""
        return name_in_table(self.renamed, column)


def columns_for(
    target: Target, schema: pa.Schema, identifier: Callable[[str], object]
) -> tuple[pa.Field, ...]:
    """The columns of a view to be stored, after checks that do not depend on the existing table.

    Args:
        target: The table.
        schema: The columns of the view.
        identifier: Raises ``InvalidName`` for a name that the database does not allow.

    Raises:
        Unwritable: No table could hold the columns.
        InvalidName: The database does not allow one of their names.
    """
    check_columns(schema, target.key)
    fields = stored_columns(schema)
    check_renamed(target.renamed, [field.name for field in fields])
    for field in fields:
        identifier(target.name_of(field.name))
    return fields


def match(
    fields: Iterable[pa.Field],
    fitted: Callable[[pa.Field], C | None],
    made: Callable[[pa.Field], C],
) -> tuple[list[C], list[C]]:
    """Match each column with the table's column, or with the one to create.

    Args:
        fields: The columns of the view.
        fitted: Matches a column with the table's; None if the table has none.
        made: Describes the column to create.

    Returns:
        All columns, and those that have to be created.
    """
    columns, missing = [], []
    for field in fields:
        column = fitted(field)
        columns.append(column or made(field))
        if column is None:
            missing.append(columns[-1])
    return columns, missing


def check_may_add(target: Target, missing: Iterable[str]) -> str:
    """Refuse to add columns to a table unless ``create`` allows it.

    Returns:
        Their names, for messages.

    Raises:
        Unwritable: There are missing columns, and they may not be added.
    """
    names = ", ".join(f"`{name}`" for name in missing)
    if names and not target.create:
        raise Unwritable(
            f"table `{target.table}` has no column {names}; add it, or set create = 'true'"
        )
    return names


def check_not_computed(where: str, is_generated: bool) -> None:
    """Refuse a generated column, which cannot be written.

    Raises:
        Unwritable: The server computes the column.
    """
    if is_generated:
        raise Unwritable(f"{where} is computed by the server and cannot be written")


def unfit(where: str, shown: str, kind: pa.DataType, better: str) -> Unwritable:
    """The error for a table column that does not hold every value of the view's type."""
    return Unwritable(
        f"{where} is of type {shown}, which does not hold every value of type"
        f" {kind} as it is; make it {better}, or cast it in the view"
    )


def check_renamed(renamed: Iterable[str], names: Sequence[str]) -> None:
    """Check that each option ``column.NAME`` names a column of the view.

    Raises:
        Unwritable: An option names another column.
    """
    known = {each.casefold() for each in names}
    for name in renamed:
        if name.casefold() not in known:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise Unwritable(f"the view has no column `{name}`, which `column.{name}` names{hint}")


def check_distinct(columns: Iterable[tuple[str, str]]) -> None:
    """Check that no two columns of the view go to the same column of the table.

    Args:
        columns: The names in the view, each with the name in the table.

    Raises:
        Unwritable: Two columns have the same target.
    """
    seen: dict[str, str] = {}
    for name, target in columns:
        other = seen.setdefault(target, name)
        if other != name:
            raise Unwritable(f"the columns `{other}` and `{name}` both go to `{target}`")


def check_required(table: str, required: Iterable[str], given: Iterable[str]) -> None:
    """Check that the view has every column that the table requires in an insert.

    Raises:
        Unwritable: A required column is missing.
    """
    ours = {*given}
    for name in required:
        if name not in ours:
            raise Unwritable(
                f"column `{name}` of table `{table}` must not be null and has no"
                " default, and the view has no such column"
            )

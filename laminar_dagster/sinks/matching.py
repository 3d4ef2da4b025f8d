"""The columns of a view against those of a table, whichever the database is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from laminar_dagster.sinks.changes import Unwritable, check_columns, stored_columns

C = TypeVar("C")


def name_in_table(renamed: Mapping[str, str], column: str) -> str:
    """What the table calls a column of the view."""
    folded = {name.casefold(): target for name, target in renamed.items()}
    return folded.get(column.casefold(), column)


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and how.

    Attributes:
        key: Columns of the view, in upsert mode.
        create: Whether the table, and columns that it lacks, may be made.
        renamed: Columns of the table by those of the view; others keep their names.
    """

    table: str
    key: tuple[str, ...]
    create: bool
    renamed: Mapping[str, str]

    def name_of(self, column: str) -> str:
        """What the table calls a column of the view."""
        return name_in_table(self.renamed, column)


def columns_for(
    target: Target, schema: pa.Schema, identifier: Callable[[str], object]
) -> tuple[pa.Field, ...]:
    """The columns of a view that are to reach a table, whatever the table is like.

    Args:
        target: The table.
        schema: The columns of the view.
        identifier: Raises ``InvalidName`` for a name that the database cannot hold.

    Raises:
        Unwritable: No table could take them.
        InvalidName: The database cannot hold one of their names.
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
    """Each column as the table has it, or as it would be made.

    Args:
        fields: The columns of the view.
        fitted: One as the table has it; None if it has none.
        made: One as it would be made.

    Returns:
        All of them, and those that have to be made.
    """
    columns, missing = [], []
    for field in fields:
        column = fitted(field)
        columns.append(column or made(field))
        if column is None:
            missing.append(columns[-1])
    return columns, missing


def check_may_add(target: Target, missing: Iterable[str]) -> str:
    """Columns that a table lacks may be added, if there are any.

    Returns:
        Their names, for people.

    Raises:
        Unwritable: They may not.
    """
    names = ", ".join(f"`{name}`" for name in missing)
    if names and not target.create:
        raise Unwritable(
            f"table `{target.table}` has no column {names}; add it, or set create = 'true'"
        )
    return names


def check_not_computed(where: str, is_generated: bool) -> None:
    """A column that the server fills by itself cannot be written.

    Raises:
        Unwritable: It is one.
    """
    if is_generated:
        raise Unwritable(f"{where} is computed by the server and cannot be written")


def unfit(where: str, shown: str, kind: pa.DataType, better: str) -> Unwritable:
    """What is said of a column that would change values."""
    return Unwritable(
        f"{where} is of type {shown}, which does not hold every value of type"
        f" {kind} as it is; make it {better}, or cast it in the view"
    )


def check_renamed(renamed: Iterable[str], names: Sequence[str]) -> None:
    """Each option ``column.NAME`` must name a column of the view.

    Raises:
        Unwritable: One does not.
    """
    known = {each.casefold() for each in names}
    for name in renamed:
        if name.casefold() not in known:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise Unwritable(f"the view has no column `{name}`, which `column.{name}` names{hint}")


def check_distinct(columns: Iterable[tuple[str, str]]) -> None:
    """No two columns of the view may go to one of the table.

    Args:
        columns: Names in the view, each with the one in the table.

    Raises:
        Unwritable: Two do.
    """
    seen: dict[str, str] = {}
    for name, target in columns:
        other = seen.setdefault(target, name)
        if other != name:
            raise Unwritable(f"the columns `{other}` and `{name}` both go to `{target}`")


def check_required(table: str, required: Iterable[str], given: Iterable[str]) -> None:
    """The view must have every column that an insert has to name.

    Raises:
        Unwritable: One is missing.
    """
    ours = {*given}
    for name in required:
        if name not in ours:
            raise Unwritable(
                f"column `{name}` of table `{table}` must not be null and has no"
                " default, and the view has no such column"
            )

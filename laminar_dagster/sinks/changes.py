"""Split an epoch's changelog into rows to append or upsert, and keys to delete.

A column ``_weight`` distinguishes inserts (+1) from retractions (-1); it is never stored. The rows
of an epoch apply in order, file by file, so the last row of a key decides.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

WEIGHT: Final = "_weight"

Mode = Literal["append", "upsert"]


class Unwritable(Exception):
    """Rows that cannot be published as they are. Nothing was published; the text says why."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows to write, and keys to delete (None without deletes). No key is in both."""

    rows: pa.Table
    deleted: pa.Table | None


def stored_columns(schema: pa.Schema) -> tuple[pa.Field, ...]:
    """The columns that reach the table."""
    return tuple(field for field in schema if field.name != WEIGHT)


def check_columns(schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Refuse columns that no table can take, before anything is written.

    Raises:
        Unwritable: Says which, and why.
    """
    names = [field.name for field in stored_columns(schema)]
    if not names:
        raise Unwritable("the view has no columns")
    seen: dict[str, str] = {}
    for name in names:
        # Table column names are case-insensitive; a view's are not.
        other = seen.setdefault(name.casefold(), name)
        if other is not name:
            raise Unwritable(f"the columns `{other}` and `{name}` differ in nothing but case")
    if schema.names.count(WEIGHT) > 1:
        raise Unwritable(f"the view has the column `{WEIGHT}` twice")
    if WEIGHT in schema.names and not pa.types.is_integer(schema.field(WEIGHT).type):
        raise Unwritable(f"`{WEIGHT}` is of type {schema.field(WEIGHT).type}, not a whole number")
    for name in key:
        if name not in names:
            near = [each for each in names if each.casefold() == name.casefold()]
            near = near or difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise Unwritable(f"the view has no key column `{name}`{hint}")
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise Unwritable(f"key column `{name}` is of type {kind}, which does not compare well")


def check_rows(table: pa.Table, key: tuple[str, ...]) -> None:
    """Refuse rows that no table can take; checks the key and weight columns only.

    Args:
        table: The rows, with at least the key columns and ``_weight``, if it exists.
        key: The key columns in upsert mode; empty in append mode.

    Raises:
        Unwritable: A key is null, or a weight cannot be applied.
    """
    for name in key:
        if nulls := table.column(name).null_count:
            raise Unwritable(
                f"key column `{name}` is null in {nulls} rows; leave them out in the view, or give"
                " them a key"
            )
    if WEIGHT in table.column_names:
        _check_weights(table.column(WEIGHT), is_append=not key)


def split(table: pa.Table, key: tuple[str, ...], *, one_row_per_key: bool = False) -> Changes:
    """Separate rows to write from keys to delete, by ``_weight``.

    Args:
        table: Rows in the order in which they apply.
        key: The key columns in upsert mode; empty in append mode.
        one_row_per_key: Keep only the last row of each key, for sinks that cannot apply rows
            one after the other.

    Raises:
        Unwritable: A key is null, or a weight cannot be applied.
    """
    check_rows(table, key)
    if WEIGHT not in table.column_names:
        return Changes(last_of_each_key(table, key) if one_row_per_key else table, None)
    if not key:
        return Changes(table.drop_columns([WEIGHT]), None)
    table = last_of_each_key(table, key)
    is_put = pc.greater(table.column(WEIGHT), 0)
    put = table.filter(is_put).drop_columns([WEIGHT])
    return Changes(put, table.filter(pc.invert(is_put)).select(key))


def last_of_each_key(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Keep only the last row of each key, in the original order."""
    columns = {str(place): plain(table.column(name)) for place, name in enumerate(key)}
    rows = pa.table({**columns, "row": pa.arange(0, table.num_rows)})
    last = rows.group_by([*columns], use_threads=False).aggregate([("row", "max")])
    if last.num_rows == table.num_rows:
        return table
    return table.take(last.column("row_max").combine_chunks().sort())


def _check_weights(weights: pa.ChunkedArray, *, is_append: bool) -> None:
    known = [1] if is_append else [1, -1]
    bad = pc.invert(pc.is_in(weights.cast(pa.int64()), value_set=pa.array(known, pa.int64())))
    found = weights.filter(bad)
    if len(found):
        what = "a sink that appends cannot delete" if is_append else "only 1 and -1 are known"
        raise Unwritable(f"`{WEIGHT}` is {found[0]} in {len(found)} rows: {what}")


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column: its chunks may have different dictionaries."""
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column

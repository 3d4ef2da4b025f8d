"""Check staged values against a sink before the epoch is prepared.

A prepared epoch is never computed again. A row that only the commit refuses would block the sink
for good, even if the query is fixed. So the commit's checks run beforehand, on the columns that
they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.changes import WEIGHT, check_rows, split
from laminar_dagster.sinks.portions import batches, portions
from laminar_dagster.sinks.staged import staged_columns


class EncodedColumn(Protocol):
    """A column of the view, with its encoder for the table's column."""

    @property
    def name(self) -> str:
        """The name in the view."""
        ...

    @property
    def encode(self) -> Callable[[pa.Array], object]:
        """The encoder, which raises ``BadValues`` for values that the column cannot hold."""
        ...


def check_changes(staged: StagedOutput, key: tuple[str, ...]) -> None:
    """Refuse keys and weights that no table can take. Reads no other columns.

    Args:
        staged: The staged output of an epoch.
        key: The key columns in upsert mode; empty in append mode.

    Raises:
        Unwritable: A key is null, or a weight cannot be applied.
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file cannot be read.
    """
    for rows in staged_columns(staged, lambda schema: _present(schema, (*key, WEIGHT))):
        check_rows(rows, key)


def check_values(
    staged: StagedOutput, columns: Sequence[EncodedColumn], key: tuple[str, ...]
) -> None:
    """Refuse the keys, weights and values that the commit would refuse.

    Rows that a later row of the same key replaces are not written, so they are not checked.

    Raises:
        Unwritable: Says which column, and shows bad rows.
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file cannot be read.
    """

    def wanted(schema: pa.Schema) -> list[str]:
        choosy = [each.name for each in columns if _is_choosy(schema, each.name)]
        return _present(schema, (*key, WEIGHT, *choosy))

    for rows in portions(staged_columns(staged, wanted)):
        check_rows(rows, key)
        encoded = [each for each in columns if each.name in rows.column_names]
        if not any(_is_choosy(rows.schema, each.name) for each in encoded):
            continue
        for batch in batches(split(rows, key, one_row_per_key=bool(key)).rows):
            for column in encoded:
                with blamed_on(batch, column.name, key):
                    column.encode(batch.column(column.name))


def _present(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name in schema.names]


def _is_choosy(schema: pa.Schema, name: str) -> bool:
    """Whether a column's values can be refused. Integers and booleans cannot: their types fit.

    Other types can, such as a float that is NaN.
    """
    kind = schema.field(name).type
    return not (pa.types.is_integer(kind) or pa.types.is_boolean(kind))

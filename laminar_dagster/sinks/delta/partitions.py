"""Refuse partition values that a Delta table does not return unchanged.

Partition values are stored in the log, as texts, and the client writes some as the text of another
value. A key column would then never match and be inserted again by each upsert; any other column
would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import is_binary, is_string
from laminar_dagster.sinks.changes import Unwritable, plain

_WAY_OUT: Final = "partition the table by another column, or write other values in the view"


def check_partition_types(partitioned_by: Iterable[str], columns: pa.Schema) -> None:
    """Refuse partition columns of a type whose values the log does not keep.

    Args:
        partitioned_by: The table's partition columns.
        columns: The columns that are written, in the table's types.

    Raises:
        Unwritable: Says which column.
    """
    for name in _present(partitioned_by, columns):
        if is_binary(columns.field(name).type):
            # The byte 0x61 is written as the text "\u0061", and read back as those six bytes.
            raise Unwritable(
                f"the Delta table is partitioned by `{name}`, which is binary: its client writes"
                f" other bytes into the log; partition the table by another column, or make a"
                " text of it in the view, such as with base64"
            )


def check_partition_values(partitioned_by: Iterable[str], rows: pa.Table) -> None:
    """Refuse partition values that would be read back as other values.

    Raises:
        Unwritable: Says of which column, and how many.
    """
    for name in _present(partitioned_by, rows.schema):
        column = plain(rows.column(name))
        if is_string(column.type):
            # The log writes the empty text and null the same way.
            _refuse(name, pc.equal(column, ""), "are empty texts, which become nulls")
        elif pa.types.is_decimal(column.type) and column.type.scale > 0:
            # -1.05 is written as "-1.-5": a table with that in its log cannot be read any more.
            _refuse(name, pc.less(column, 0), "are negative, which its client cannot write")


def _present(partitioned_by: Iterable[str], columns: pa.Schema) -> Iterator[str]:
    return (name for name in partitioned_by if name in columns.names)


def _refuse(name: str, is_bad: pa.ChunkedArray, problem: str) -> None:
    if count := pc.sum(is_bad).as_py():
        raise Unwritable(
            f"the Delta table is partitioned by `{name}`, of which {count} values {problem};"
            f" {_WAY_OUT}"
        )

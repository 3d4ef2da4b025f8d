"""Assemble rows in the binary format of ``COPY`` from columns.

A row is the number of its fields, then each field's length and bytes; a null has the length -1 and
no bytes. See https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.pieces import Field, Fixed, Piece, Varying, binary, block, joined

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = b"\xff\xff"

_NULL: Final = b"\xff\xff\xff\xff"


def fixed(array: pa.Array, *values: Field) -> tuple[Piece, ...]:
    """A column whose values all have the same length, except nulls.

    Args:
        array: Its null mask says which values are null.
        values: The fields of a value, without its length.
    """
    length = sum(np.dtype(form).itemsize for form, _ in values)
    fields: tuple[Field, ...] = ((">i4", length), *values)
    if array.null_count == 0:
        return (Fixed(fields),)
    return (Varying(pc.if_else(array.is_valid(), block(len(array), fields), binary(_NULL))),)


def varying(values: pa.Array) -> tuple[Piece, ...]:
    """A column of strings or bytes of varying length."""
    # Cheap, unless the array has another layout.
    values = values.cast(pa.large_binary())
    lengths = pc.binary_length(values)
    if values.null_count:
        # The length of a null is -1, and no bytes follow it.
        lengths, values = lengths.fill_null(-1), values.fill_null(binary(b""))
    return Fixed(((">i4", lengths.to_numpy(zero_copy_only=False)),)), Varying(values)


def prefixed(prefix: bytes, values: pa.Array) -> pa.Array:
    """Each value with a prefix; nulls stay null."""
    return pc.binary_join_element_wise(binary(prefix), values.cast(pa.large_binary()), binary(b""))


def rows_of(count: int, columns: Sequence[Iterable[Piece]]) -> pa.Buffer:
    """The bytes of rows in the ``COPY`` format.

    Args:
        count: The number of rows, at least one.
        columns: The pieces of each column.
    """
    fields = Fixed(((">i2", len(columns)),))
    return joined(count, [fields, *(piece for column in columns for piece in column)]).buffers()[2]

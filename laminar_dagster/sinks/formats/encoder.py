"""The interface of message encoders, and helpers for their columns."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from laminar_dagster.sinks.arrow_values import plain
from laminar_dagster.sinks.changes import WEIGHT, Unwritable


class MessageEncoder(Protocol):
    """Encodes each row as one message."""

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One binary value for each row, in the order of the rows.

        The same rows give the same bytes, whatever batch they come in.

        Args:
            batch: Rows with the columns that the encoder was made for, without ``_weight``, which
                is no part of a message.

        Raises:
            Unwritable: A value does not fit; says which column and which rows. The error leaves
                no state behind: the encoder can be used again.
        """
        ...


def message_columns(schema: pa.Schema) -> list[pa.Field]:
    """The columns of a message.

    Raises:
        Unwritable: There are none, a name is duplicated, or ``_weight`` is among them.
    """
    if WEIGHT in schema.names:
        raise Unwritable(f"`{WEIGHT}` is no part of a message; take it out of the columns")
    if not schema.names:
        raise Unwritable("the view has no columns")
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise Unwritable(f"the view has the column `{name}` twice; rename one of them")
    return list(schema)


def column_of(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column of a batch, converted by ``plain``.

    Raises:
        Unwritable: The batch does not have the column, or has it with another type.
    """
    place = batch.schema.get_field_index(field.name)
    if place < 0 or batch.schema.types[place] != field.type:
        found = "is missing" if place < 0 else f"is of type {batch.schema.types[place]}"
        raise Unwritable(f"column `{field.name}` {found}; it was {field.type} when the sink began")
    return plain(batch.column(place))

"""The raw format: the view's only column is the message."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from laminar_dagster.sinks.arrow_values import is_binary, is_string, plain_type
from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.encoder import (
    MessageEncoder,
    column_of,
    message_columns,
)


def raw_encoder(schema: pa.Schema) -> MessageEncoder:
    """An encoder that sends the only column unchanged. A null stays null, a Kafka tombstone.

    Raises:
        Unwritable: The columns are not exactly one of STRING or BINARY.
    """
    columns = message_columns(schema)
    kind = plain_type(columns[0].type)
    if len(columns) != 1 or not (is_string(kind) or is_binary(kind)):
        shown = ", ".join(f"`{each.name}` {each.type}" for each in columns)
        raise Unwritable(
            f"format raw takes one column, the value, of STRING or BINARY; the view has {shown}."
            " Leave the others out of it, or take the format json"
        )
    return _RawEncoder(columns[0])


@dataclass(frozen=True, slots=True)
class _RawEncoder:
    column: pa.Field

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """The bytes of each value."""
        with blamed_on(batch, self.column.name):
            return column_of(batch, self.column).cast(pa.large_binary())

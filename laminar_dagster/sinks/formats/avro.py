"""Encode rows as Avro messages, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_dagster.encoding.avro_schema import parse_avro
from laminar_dagster.sinks.arrow_values import plain_type
from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.avro_derive import derived_avro_schema
from laminar_dagster.sinks.formats.avro_plan import Planner
from laminar_dagster.sinks.formats.avro_write import Constant, Record
from laminar_dagster.sinks.formats.encoder import (
    MessageEncoder,
    column_of,
    message_columns,
)
from laminar_dagster.sinks.pieces import Piece, joined

__all__ = ["avro_encoder", "derived_avro_schema"]


def avro_encoder(
    schema: pa.Schema, avro_schema: str | None = None, references: Sequence[str] = ()
) -> MessageEncoder:
    """An encoder to Avro for rows with these columns.

    Args:
        schema: The columns.
        avro_schema: The Avro schema as JSON; None for that of ``derived_avro_schema``.
        references: The schemas that it references, in dependency order.

    Raises:
        Unwritable: The columns do not fit the schema, or it is no valid schema.
    """
    columns = message_columns(schema)
    text = derived_avro_schema(schema, "Row") if avro_schema is None else avro_schema
    try:
        parsed, named = parse_avro(text, references)
    except ValueError as error:
        raise Unwritable(str(error)) from None
    parts = [column.with_type(plain_type(column.type)) for column in columns]
    return _AvroEncoder(tuple(columns), Planner(named).record(parts, parsed, ""))


@dataclass(frozen=True, slots=True)
class _AvroEncoder:
    columns: tuple[pa.Field, ...]
    record: Record

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One Avro record for each row."""
        pieces: list[Piece] = []
        for field in self.record.fields:
            if isinstance(field, Constant):
                pieces += field.write(batch)
                continue
            name, place, slot = field
            with blamed_on(batch, name):
                pieces += slot.write(column_of(batch, self.columns[place]))
        return joined(batch.num_rows, pieces)

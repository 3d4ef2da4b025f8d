"""Encode rows as JSON messages: a compact object per row, with members in column order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.documents import check_json, json_texts, objects
from laminar_dagster.sinks.formats.encoder import (
    MessageEncoder,
    column_of,
    message_columns,
)


def json_encoder(schema: pa.Schema) -> MessageEncoder:
    """An encoder to JSON for rows with these columns.

    Raises:
        Unwritable: A column has no form in JSON.
    """
    columns = message_columns(schema)
    for column in columns:
        check_json(column.name, column.type)
    return _JsonEncoder(tuple(columns))


@dataclass(frozen=True, slots=True)
class _JsonEncoder:
    columns: tuple[pa.Field, ...]

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One JSON object per row; a null value is written as null, not left out."""
        texts = []
        for column in self.columns:
            with blamed_on(batch, column.name):
                texts.append(json_texts(column_of(batch, column)))
        return objects([column.name for column in self.columns], texts)

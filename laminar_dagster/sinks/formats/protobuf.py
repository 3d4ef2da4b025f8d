"""Encode rows as Protobuf messages, a field at a time, in the order of field numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_dagster.encoding.protobuf_schema import (
    MAIN,
    compile_proto,
    load,
    message_at,
    message_named,
    path_of,
)
from laminar_dagster.sinks.arrow_values import plain_type
from laminar_dagster.sinks.bad_values import blamed_on
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.encoder import column_of, message_columns
from laminar_dagster.sinks.formats.protobuf_derive import derived_file, text_of
from laminar_dagster.sinks.formats.protobuf_plan import message_plan
from laminar_dagster.sinks.formats.protobuf_write import Message
from laminar_dagster.sinks.formats.wire_format import message_index
from laminar_dagster.sinks.pieces import Piece, joined

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


def derived_protobuf_schema(schema: pa.Schema, name: str) -> str:
    """A ``.proto`` file with one message for rows with these columns.

    The same columns give the same text.

    Args:
        schema: The columns.
        name: The message's name, with its package.

    Raises:
        Unwritable: Protobuf has no type for a column, or does not allow its name.
    """
    return text_of(*derived_file(schema, name))


def protobuf_encoder(
    schema: pa.Schema,
    proto: str | None = None,
    message: str = "",
    imports: Mapping[str, str] | None = None,
) -> ProtobufEncoder:
    """An encoder to Protobuf for rows with these columns.

    Args:
        schema: The columns.
        proto: The text of the ``.proto`` file with the message; None for that of
            ``derived_protobuf_schema``.
        message: The full name of the message; empty for the first one in the file.
        imports: Imported files, by their import paths; Google's own need not be given.

    Raises:
        Unwritable: The columns do not fit the message, or the message does not exist.
    """
    columns = message_columns(schema)
    try:
        found = _derived(schema) if proto is None else _given(proto, message, imports or {})
    except ValueError as error:
        raise Unwritable(str(error)) from None
    parts = [column.with_type(plain_type(column.type)) for column in columns]
    plan = message_plan(parts, found)
    return ProtobufEncoder(tuple(columns), plan, message_index(path_of(found)))


@dataclass(frozen=True, slots=True)
class ProtobufEncoder:
    """Encodes each row as a Protobuf message.

    Attributes:
        message_index: The message's index within its file, for ``wire_format.framed``.
    """

    columns: tuple[pa.Field, ...]
    plan: Message
    message_index: bytes

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One message for each row."""
        pieces: list[Piece] = []
        for name, place, field in self.plan.fields:
            with blamed_on(batch, name):
                pieces += field.write(column_of(batch, self.columns[place]))
        return joined(batch.num_rows, pieces)


def _derived(schema: pa.Schema) -> Descriptor:
    from google.protobuf import descriptor_pb2, timestamp_pb2

    file, _ = derived_file(schema, "Row")
    times = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    both = descriptor_pb2.FileDescriptorSet(file=[times, file])
    return message_named(both.SerializeToString(), "Row")


def _given(proto: str, message: str, imports: Mapping[str, str]) -> Descriptor:
    compiled = compile_proto(proto, imports)
    if message:
        return message_named(compiled, message)
    return message_at(load(compiled)[MAIN], [0])

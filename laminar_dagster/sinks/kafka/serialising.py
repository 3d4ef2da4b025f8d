"""The bytes of keys and values: a format, and the schema that the registry knows it by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from laminar_dagster.clients.schema_registry import RefusedSchema, SchemaRegistry, UnknownSchema
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.wire_format import framed
from laminar_dagster.sinks.kafka.options import Format, KafkaSinkOptions

if TYPE_CHECKING:
    from laminar_dagster.sinks.formats.encoder import MessageEncoder

Part = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Form:
    """How a part of a message is written.

    Attributes:
        columns: What it is made of.
        schema: What the registry is to know it by: the kind and the text; None without one.
        index: Where in that schema the message is, as Confluent's header says it.
    """

    part: Part
    columns: tuple[str, ...]
    encoder: MessageEncoder
    schema: tuple[str, str] | None = None
    index: bytes = b""

    def encode(self, rows: pa.Table, schema_id: int | None) -> pa.Array:
        """The bytes of this part of every row.

        Raises:
            Unwritable: A value does not fit.
        """
        bodies = [self.encoder.encode(batch) for batch in rows.select(self.columns).to_batches()]
        made = pa.concat_arrays([body.cast(pa.large_binary()) for body in bodies or [_none()]])
        return made if schema_id is None else framed(made, schema_id, self.index)


def form_of(part: Part, schema: pa.Schema, options: KafkaSinkOptions) -> Form:
    """How a part of the messages is written.

    Raises:
        Unwritable: The columns do not fit the format.
    """
    kind: Format = options.key_format if part == "key" else options.format
    columns = options.key_columns if part == "key" else options.value_columns
    columns = columns or tuple(schema.names)
    for name in columns:
        if schema.names.count(name) != 1:
            raise Unwritable(f"`{part}.columns` names `{name}`, which the view does not have")
    chosen = pa.schema([schema.field(name) for name in columns])
    name = re.sub(r"\W", "_", options.topic, flags=re.ASCII)
    name = f"{name}_{part}" if name[0].isalpha() or name[0] == "_" else f"_{name}_{part}"
    match kind:
        case "json":
            from laminar_dagster.sinks.formats.json import json_encoder

            return Form(part, columns, json_encoder(chosen))
        case "raw":
            from laminar_dagster.sinks.formats.raw import raw_encoder

            return Form(part, columns, raw_encoder(chosen))
        case "avro":
            return _avro(part, columns, chosen, name, options)
        case "protobuf":
            return _protobuf(part, columns, chosen, name, options)


def _avro(
    part: Part,
    columns: tuple[str, ...],
    chosen: pa.Schema,
    name: str,
    options: KafkaSinkOptions,
) -> Form:
    from laminar_dagster.sinks.formats.avro import avro_encoder
    from laminar_dagster.sinks.formats.avro_derive import derived_avro_schema

    if options.avro_schema is not None and part == "value":
        try:
            text = options.avro_schema.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Unwritable(f"`avro.schema` cannot be read: {error}") from None
    else:
        text = derived_avro_schema(chosen, name)
    schema = ("AVRO", text) if options.registry else None
    return Form(part, columns, avro_encoder(chosen, text), schema)


def _protobuf(
    part: Part,
    columns: tuple[str, ...],
    chosen: pa.Schema,
    name: str,
    options: KafkaSinkOptions,
) -> Form:
    from laminar_dagster.sinks.formats.protobuf import derived_protobuf_schema, protobuf_encoder

    text = derived_protobuf_schema(chosen, name)
    # Of the same columns, so of the same fields; a name is not part of a message.
    encoder = protobuf_encoder(chosen)
    schema = ("PROTOBUF", text) if options.registry else None
    return Form(part, columns, encoder, schema, encoder.message_index)


def registry_of(options: KafkaSinkOptions) -> SchemaRegistry | None:
    """The registry that the options name."""
    found = options.registry
    if found is None:
        return None
    return SchemaRegistry(found.url, found.username, found.password, found.ca_location)


def schema_id(
    form: Form, options: KafkaSinkOptions, registry: SchemaRegistry | None, *, only_ask: bool
) -> int | None:
    """What the registry knows a part's schema by; None without one, or if it was only asked.

    Args:
        form: The part.
        options: Of the sink.
        registry: Where its schemas are.
        only_ask: Whether to find out if the registry takes it, and register nothing.

    Raises:
        Unwritable: It does not take it, or does not have it and is not to be given it.
        RegistryUnavailable, AuthFailed: It cannot be asked.
    """
    if form.schema is None or registry is None:
        return None
    subject = f"{options.topic}-{form.part}"
    try:
        if not options.auto_register:
            return registry.find(subject, *form.schema)
        if only_ask:
            registry.check(subject, *form.schema)
            return None
        return registry.register(subject, *form.schema)
    except UnknownSchema as error:
        raise Unwritable(
            f"schema registry {registry.url}: {error}; register it,"
            " or set 'auto.register.schemas' = 'true'"
        ) from None
    except RefusedSchema as error:
        raise Unwritable(
            f"schema registry {registry.url} does not take the schema of subject {subject}: {error}"
        ) from None


def _none() -> pa.Array:
    return pa.array([], pa.large_binary())

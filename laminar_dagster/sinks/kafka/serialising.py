"""Serialise keys and values: the format's encoder, and the schema in the registry."""

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
    """How the key or the value of messages is serialised.

    Attributes:
        columns: The columns that it contains.
        schema: The type and text of the schema to register; None without a registry.
        index: The path of the message type within the schema, for Confluent's header.
    """

    part: Part
    columns: tuple[str, ...]
    encoder: MessageEncoder
    schema: tuple[str, str] | None = None
    index: bytes = b""

    def encode(self, rows: pa.Table, schema_id: int | None) -> pa.Array:
        """The serialised key or value of each row.

        Raises:
            Unwritable: A value does not fit.
        """
        bodies = [self.encoder.encode(batch) for batch in rows.select(self.columns).to_batches()]
        made = pa.concat_arrays([body.cast(pa.large_binary()) for body in bodies or [_none()]])
        return made if schema_id is None else framed(made, schema_id, self.index)


def form_of(part: Part, schema: pa.Schema, options: KafkaSinkOptions) -> Form:
    """The form of a key or a value, according to the sink's options.

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
    # The encoder derives its own schema, of another name: names are not part of a message.
    encoder = protobuf_encoder(chosen)
    schema = ("PROTOBUF", text) if options.registry else None
    return Form(part, columns, encoder, schema, encoder.message_index)


def registry_of(options: KafkaSinkOptions) -> SchemaRegistry | None:
    """A client of the schema registry that the options name; None if they name none."""
    found = options.registry
    if found is None:
        return None
    return SchemaRegistry(found.url, found.username, found.password, found.ca_location)


def schema_id(
    form: Form, options: KafkaSinkOptions, registry: SchemaRegistry | None, *, only_ask: bool
) -> int | None:
    """The registry's id of a schema; None without a schema, or if it was only checked.

    Args:
        form: The key's or the value's form.
        options: The sink's options.
        registry: The schema registry.
        only_ask: Whether to only check that the registry accepts the schema.

    Raises:
        Unwritable: The registry refuses the schema, or lacks it and ``auto_register`` is off.
        RegistryUnavailable, AuthFailed: The registry cannot be asked.
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

"""Discovers the format and columns of a topic that has no source yet.

The schema registry knows them, if there is one. Without, some messages are sampled, and the result
is a guess: whoever shows it has to say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.partition_reader import PartitionReader
from laminar_dagster.clients.kafka.settings import client_settings
from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.model import Column
from laminar_dagster.config.references import is_reserved, is_usable
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.formats.arrow_types import arrow_schema
from laminar_dagster.sources.formats.found_columns import FoundColumn
from laminar_dagster.sources.formats.json_samples import guess_columns, object_in
from laminar_dagster.sources.formats.schema_discovery import columns_of
from laminar_dagster.sources.kafka.decoding import registry_of
from laminar_dagster.sources.kafka.options import Format, KafkaOptions
from laminar_dagster.sources.kafka.topics import Look, Topics
from laminar_dagster.sources.kafka.value_decoders import decoder_of

if TYPE_CHECKING:
    from laminar_dagster.clients.schema_registry import SchemaRegistry

# How many of the newest messages of a topic are sampled.
SAMPLE: Final = 1000

_FORMATS: Final[Mapping[str, Format]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}
_ENVELOPE: Final = frozenset({"before", "after", "op"})
# The first byte of Confluent's wire format, with which JSON never begins.
_MAGIC: Final = b"\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """What was discovered of a topic.

    Attributes:
        partitions: How many partitions it has.
        format: The format of its messages.
        columns: The columns that a table of it can have.
        left_out: Fields that no column can hold, or whose names no column can have.
        origin: Where the columns are known from, in words.
        is_guess: Whether the columns are guessed from messages, and others may differ.
        unfit: How many of the sampled messages would be dead letters with these columns.
    """

    topic: str
    partitions: int
    format: Format
    columns: tuple[FoundColumn, ...]
    left_out: tuple[str, ...]
    origin: str
    is_guess: bool = False
    unfit: int = 0


def discover_topic(options: KafkaOptions, subject: str = "") -> FoundTopic:
    """Discover the topic that the options name.

    Args:
        options: How to reach it; with a registry or without.
        subject: The subject in the registry; by default the topic's ``-value`` subject.

    Raises:
        InvalidConfig: There is no such topic or subject, or no columns can be found.
        SourceUnavailable, RegistryUnavailable, AuthFailed: A service cannot be queried.
    """
    (topic,) = options.topics
    servers = options.bootstrap_servers
    cluster = Cluster(
        Asker.source(topic),
        client_settings(servers, options.properties),
        options.connect_timeout.total_seconds(),
    )
    address = f"kafka://{servers}/{topic}"
    try:
        look = Topics(topic, address, options, cluster).look(None)
    except InvalidConfig as error:
        known = cluster.matching(".*")
        hint = nearest(topic, known, listed(known, "there is"))
        raise InvalidConfig(address, "the cluster has no such topic", hint) from error
    registry = registry_of(options)
    if registry is not None:
        found = _registered(registry, subject or f"{topic}-value", topic)
    else:
        found = _guessed(_sample(cluster, look), options, address)
    found = replace(found, partitions=len(look.topics[topic].partitions))
    if not found.columns:
        problem = f"no column can hold or be called like its fields: {', '.join(found.left_out)}"
        raise InvalidConfig(address, problem, "format raw reads messages as they are")
    return found


def _registered(registry: SchemaRegistry, subject: str, topic: str) -> FoundTopic:
    # Imported here: most sources have no registry.
    from laminar_dagster.clients.schema_registry import UnknownSchema

    where = f"schema registry {registry.url}"
    try:
        latest = registry.latest(subject)
    except UnknownSchema as error:
        hint = "name another with --subject, or leave the registry out to look at messages"
        raise InvalidConfig(where, str(error), hint) from None
    if latest.kind not in _FORMATS:
        problem = f"subject {subject} has a schema of {latest.kind}, which no format reads"
        raise InvalidConfig(where, problem)
    try:
        columns = columns_of(latest)
    except ValueError as error:
        raise InvalidConfig(where, f"subject {subject}: {error}") from None
    kind = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON"}[latest.kind]
    origin = f"subject {subject}, {kind} schema {latest.schema_id}"
    return _found(topic, _FORMATS[latest.kind], columns, origin)


def _sample(cluster: Cluster, look: Look) -> list[bytes]:
    """The newest messages of each partition, without tombstones."""
    lanes = [lane for lane, edges in look.edges.items() if edges.earliest < edges.end]
    found: list[bytes] = []
    for lane in lanes:
        with PartitionReader(Asker.source(lane[0]), cluster, lane) as reader:
            end = reader.end(stable=True)
            reader.position = max(reader.position, end - -(-SAMPLE // len(lanes)))
            found += [value for each in reader.news(end) if (value := each.value()) is not None]
    return found


def _guessed(messages: Sequence[bytes], options: KafkaOptions, address: str) -> FoundTopic:
    if not messages:
        hint = "give a registry with --schema-registry, or come again when something is there"
        raise InvalidConfig(address, "the topic holds no message to look at", hint)
    objects = [held for each in messages if (held := object_in(each)) is not None]
    if not objects:
        raise _unreadable(messages, address)
    if any(_is_envelope(each) for each in objects):
        hint = "declare the columns of the table in sources.sql, with format = 'debezium-json'"
        raise InvalidConfig(address, "its messages are Debezium's envelopes", hint)
    (topic,) = options.topics
    looked = f"{len(messages):,} message" + ("s" if len(messages) > 1 else "")
    found = _found(topic, "json", guess_columns(objects), f"the newest {looked}")
    return replace(found, is_guess=True, unfit=_unfit(found.columns, messages, options))


def _found(topic: str, kind: Format, columns: Sequence[FoundColumn], origin: str) -> FoundTopic:
    kept: dict[str, FoundColumn] = {}
    for each in columns:
        # SQL names are case-insensitive: of two that differ in case only, the first is kept.
        if each.type and is_usable(each.name) and not is_reserved(each.name):
            kept.setdefault(each.name.lower(), each)
    chosen = tuple(kept.values())
    return FoundTopic(
        topic=topic,
        partitions=0,
        format=kind,
        columns=chosen,
        left_out=tuple(each.name for each in columns if each not in chosen),
        origin=origin,
    )


def _unfit(columns: Sequence[FoundColumn], messages: Sequence[bytes], options: KafkaOptions) -> int:
    """How many of the sampled messages cannot be decoded into the columns."""
    if not columns:
        return 0
    schema = arrow_schema(Column(each.name, each.type, each.nullable) for each in columns)
    decoder = decoder_of("json", schema, options, options.topics[0])
    decoded = decoder.decode(pa.array(messages, pa.binary()), np.arange(len(messages)))
    return len(decoded.bad)


def _is_envelope(message: Mapping[str, Any]) -> bool:
    payload = message.get("payload")
    return message.keys() >= _ENVELOPE or (
        isinstance(payload, dict) and payload.keys() >= _ENVELOPE
    )


def _unreadable(messages: Sequence[bytes], address: str) -> InvalidConfig:
    if all(each.startswith(_MAGIC) for each in messages):
        problem = "its messages look as if a schema registry had their schema"
        return InvalidConfig(address, problem, "say where it is with --schema-registry")
    hint = "declare its columns yourself in sources.sql; formats: csv, raw, avro, protobuf"
    return InvalidConfig(address, "its messages are not JSON objects", hint)

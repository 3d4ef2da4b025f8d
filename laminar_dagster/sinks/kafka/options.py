"""The options of a Kafka sink. Properties of librdkafka go under ``kafka.``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast, get_args

from laminar_dagster.clients.kafka.options import (
    RegistryOptions,
    check_topic,
    pass_through,
    registry_options,
)
from laminar_dagster.clients.kafka.properties import PASS_THROUGH
from laminar_dagster.config.model import SinkTable
from laminar_dagster.sinks.changes import Mode
from laminar_dagster.sinks.kafka.partitions import Partitioner
from laminar_dagster.sinks.options import SinkOptions

Format = Literal["json", "avro", "protobuf", "raw"]

LEDGER_TOPIC: Final = "_laminar_ledger"
WITH_REGISTRY: Final = frozenset({"avro", "protobuf"})

# The throughput assumed of a broker, which sets the default size of a transaction from its timeout.
_ROWS_PER_SECOND: Final = 50_000
_BYTES_PER_SECOND: Final = 16 * 2**20

_LASTING: Final = "an epoch that the broker may lose again would be a gap that nobody sees"
_FIXED: Final = {
    "acks": ("all", _LASTING),
    "request.required.acks": ("all", _LASTING),
    "enable.idempotence": ("true", "a message that is sent again must not be there twice"),
    "isolation.level": ("read_committed", "the ledger of an aborted epoch must not be read"),
}
_OWN: Final = frozenset({"bootstrap.servers", "transaction.timeout.ms", "partitioner"})
_INNER: Final = {
    "transactional.id": "it follows from the names of the pipeline and of the sink",
    "queue.buffering.max.messages": "it follows from `max_buffer_size`",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts in seconds, and the size limits of a transaction.

    Attributes:
        connect: To reach the cluster, and to wait for a transaction that is being ended.
        transaction: After this time the broker aborts a transaction by itself.
        commit: To wait for the answer to a commit, after which its outcome is unknown.
        abort: To wait for the answer to an abort, after which the broker's timeout ends it.
        buffered: Messages in the client's buffer, not yet delivered to the broker.
        rows: Rows in one transaction.
        bytes: Bytes of staged output in one transaction.
    """

    connect: float = 30.0
    transaction: float = 60.0
    commit: float = 30.0
    abort: float = 10.0
    buffered: int = 100_000
    rows: int = 60 * _ROWS_PER_SECOND
    bytes: int = 60 * _BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class NewTopics:
    """How to create topics that do not exist.

    Attributes:
        allowed: Whether to create them.
        partitions: Partitions of the output topic; -1 for the cluster's default.
        replication: Replication of the output and ledger topics; -1 for the cluster's default.
    """

    allowed: bool = True
    partitions: int = -1
    replication: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions:
    """The options of a ``CREATE SINK`` for Kafka.

    Attributes:
        key_columns: The columns of a message's key; if empty, messages have no key.
        value_columns: The columns of its value; empty for all columns.
        auto_register: Whether to register a schema that the registry does not have.
        avro_schema: The file of an Avro schema, instead of one derived from the columns.
        instances: Into how many transactions an epoch is split, each with its own partitions.
        ledger_topic: The topic of the sink's ledger.
        properties: Properties passed to librdkafka.
    """

    bootstrap_servers: str
    topic: str
    mode: Mode = "append"
    format: Format = "json"
    key_columns: tuple[str, ...] = ()
    key_format: Format = "json"
    value_columns: tuple[str, ...] = ()
    partitioner: Partitioner = "murmur2"
    registry: RegistryOptions | None = None
    auto_register: bool = True
    avro_schema: Path | None = None
    instances: int = 1
    ledger_topic: str = LEDGER_TOPIC
    new_topics: NewTopics = field(default_factory=NewTopics)
    limits: Limits = field(default_factory=Limits)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def key_of_rows(self) -> tuple[str, ...]:
        """The columns that identify a row; none in append mode, even if messages have a key."""
        return self.key_columns if self.mode == "upsert" else ()


def read_options(table: SinkTable, project: Path) -> KafkaSinkOptions:
    """Parse a Kafka sink's options.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    options = SinkOptions(table)
    servers = options.text("bootstrap.servers")
    topic = options.text("topic", str(table.sink_id))
    ledger = options.text("ledger.topic", LEDGER_TOPIC)
    for name in (topic, ledger):
        check_topic(name, options.refuse)
    if topic == ledger:
        options.refuse("`topic` and `ledger.topic` are the same", "give the ledger another name")
    mode = cast(Mode, options.choice("mode", get_args(Mode), "append"))
    kind = cast(Format, options.choice("format", get_args(Format), "json"))
    keys = options.names("key.columns")
    key_kind = cast(Format, options.choice("key.format", get_args(Format), "json"))
    if options.text("key", ""):
        options.refuse("`key` is not known here", "name the columns of the key in `key.columns`")
    elif mode == "upsert" and not keys:
        options.refuse("mode `upsert` needs a key", "name its columns: 'key.columns' = 'a, b'")
    registry, auto_register = _registry(options, {kind, *([key_kind] if keys else [])})
    avro_schema = options.text("avro.schema", "")
    if avro_schema and kind != "avro":
        options.refuse(f"`avro.schema` is of no use to format {kind}")
    read = KafkaSinkOptions(
        bootstrap_servers=servers,
        topic=topic,
        mode=mode,
        format=kind,
        key_columns=keys,
        key_format=key_kind,
        value_columns=options.names("value.columns"),
        partitioner=cast(
            Partitioner, options.choice("partitioner", get_args(Partitioner), "murmur2")
        ),
        registry=registry,
        auto_register=auto_register,
        avro_schema=project / avro_schema if avro_schema else None,
        instances=options.count("instances", 1),
        ledger_topic=ledger,
        new_topics=NewTopics(
            allowed=options.flag("create", True),
            partitions=options.count("partitions", -1),
            replication=options.count("replication", -1),
        ),
        limits=_limits(options),
        properties=_properties(options),
    )
    options.finish()
    return read


def _registry(options: SinkOptions, used: set[Format]) -> tuple[RegistryOptions | None, bool]:
    parts = {
        "url": options.text("schema.registry.url", ""),
        "username": options.text("schema.registry.username", ""),
        "password": options.text("schema.registry.password", ""),
        "ca_location": options.text("schema.registry.ssl.ca.location", ""),
    }
    found = registry_options(parts, options.refuse)
    auto_register = options.flag("auto.register.schemas", True)
    if found and not used & WITH_REGISTRY:
        options.refuse("`schema.registry.url` is of no use to formats without a schema")
    if not auto_register and not found:
        options.refuse("`auto.register.schemas` is of no use without `schema.registry.url`")
    return found, auto_register


def _limits(options: SinkOptions) -> Limits:
    known = Limits()
    # This option has Kafka's name, and so its unit.
    transaction = options.count("transaction.timeout.ms", round(known.transaction * 1000)) / 1000
    return Limits(
        connect=options.limit("connect_timeout", known.connect),
        transaction=transaction,
        commit=options.limit("commit_timeout", known.commit),
        abort=options.limit("abort_timeout", known.abort),
        buffered=options.count("max_buffer_size", known.buffered),
        rows=options.count("transaction.max.rows", round(transaction * _ROWS_PER_SECOND)),
        bytes=options.size("transaction.max.bytes", round(transaction * _BYTES_PER_SECOND)),
    )


def _properties(options: SinkOptions) -> dict[str, str]:
    given = options.prefixed(PASS_THROUGH)
    for name in [*given]:
        if name in _INNER:
            options.refuse(f"`{PASS_THROUGH}{name}` cannot be set", _INNER[name])
    return pass_through(given, _OWN, _FIXED, options.refuse)

"""The options in the ``WITH`` of a Kafka source. Contradictory and unknown ones are refused.

Properties of librdkafka go under ``kafka.``: ``'kafka.security.protocol' = 'SASL_SSL'``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from laminar_dagster.clients.kafka.options import (
    RegistryOptions,
    check_topic,
    pass_through,
    registry_options,
)
from laminar_dagster.clients.kafka.properties import PASS_THROUGH
from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.option_values import (
    Known,
    Mistakes,
    count,
    delimiter,
    duration,
    flag,
    fraction,
    milliseconds,
    names,
    one_of,
    or_never,
    problem_with_delimiter,
    read_values,
    size,
)

Format = Literal["json", "csv", "raw", "avro", "protobuf", "debezium-json"]
KeyFormat = Literal["json", "csv", "raw", "avro", "protobuf"]
OffsetReset = Literal["earliest", "latest", "none"]
AssignmentStrategy = Literal["range", "roundrobin", "cooperative-sticky"]
ReaderKind = Literal["auto", "fast", "portable"]
GroupOffsets = Literal["resume", "ignore"]
OnGap = Literal["fail", "earliest"]
OnSchemaProblem = Literal["dead_letter", "fail"]
DebeziumTimeUnit = Literal["ms", "us", "ns"]
DebeziumDecimals = Literal["string", "precise"]
DebeziumBefore = Literal["optional", "required"]

WITH_REGISTRY: Final = frozenset({"json", "avro", "protobuf"})

_HIGH: Final = 0.8
_LOW: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How to read topics.

    Attributes:
        topics: The names of the topics; empty where ``topic_pattern`` selects them.
        topic_pattern: A regular expression that a topic's whole name must match.
        group_id: The consumer group whose offsets follow the sinks' commits, for lag tools. Not
            read, unless ``group_offsets`` or ``auto_offset_reset`` says so.
        key_columns: The declared columns that are decoded from the message's key.
        auto_offset_reset: Where the first epoch begins. ``none`` is at the group's offsets, and
            refuses partitions of which it holds no offset.
        group_offsets: Whether the first epoch begins at the group's offsets where there are any.
        max_poll_records: How many messages one poll of the client asks for.
        poll_timeout: How long a poll waits for them.
        max_out_of_orderness: The delay of the watermark, where ``WATERMARK FOR`` names none.
        idle_timeout: How long a partition without messages holds the watermark back. None: for
            ever.
        backpressure_high: How full the task's buffer may get before the partition is paused.
        backpressure_low: How empty it must get before the partition is resumed.
        include_metadata: Whether ``_topic``, ``_partition``, ``_offset``, ``_timestamp``, ``_key``
            and ``_headers`` are columns.
        partition_assignment_strategy: The group's strategy. Epochs assign partitions themselves.
        reader: How messages are fetched, see ``fetching``.
        on_gap: Whether records that Kafka has deleted unread stop the pipeline, or are recorded
            as a gap.
        on_schema_problem: Whether records whose schema is unknown or incompatible become dead
            letters, or stop the pipeline.
        max_record_bytes: A longer value is a bad record, of which the beginning is kept.
        split_records: Read one partition in pieces of about that many offsets, side by side. None
            keeps a partition in one piece, and so in order.
        connect_timeout: How long to try to reach the brokers.
        retention_warning: Warn when the share of a partition's offsets that are before our
            position, and so can expire harmlessly, is below this.
        avro_schema: A file with the writer's schema, where there is no registry.
        protobuf_descriptor: A file with a compiled ``FileDescriptorSet``.
        protobuf_message: The full name of the message.
        debezium_time_unit: The unit of numeric timestamps, where the message does not state it.
        debezium_decimal_mode: What text in a decimal column is, where the message does not state
            it: the number, or its bytes in base64. None makes such records bad.
        debezium_before: Whether an update without the old row is a bad record. Sums by
            ``_weight`` need it; a sink that upserts does not.
        properties: Properties for librdkafka, without the prefix.
    """

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    group_id: str
    format: Format = "json"
    key_format: KeyFormat | None = None
    key_columns: tuple[str, ...] = ()
    auto_offset_reset: OffsetReset = "earliest"
    group_offsets: GroupOffsets = "ignore"
    max_poll_records: int = 1000
    poll_timeout: timedelta = timedelta(milliseconds=100)
    registry: RegistryOptions | None = None
    max_out_of_orderness: timedelta = timedelta(seconds=5)
    idle_timeout: timedelta | None = timedelta(seconds=30)
    backpressure_high: float = _HIGH
    backpressure_low: float = _LOW
    include_metadata: bool = False
    partition_assignment_strategy: AssignmentStrategy = "cooperative-sticky"
    reader: ReaderKind = "auto"
    on_gap: OnGap = "fail"
    on_schema_problem: OnSchemaProblem = "dead_letter"
    max_record_bytes: int = 16 * 1024 * 1024
    split_records: int | None = None
    connect_timeout: timedelta = timedelta(seconds=30)
    retention_warning: float = 0.1
    csv_delimiter: str = ","
    csv_null: str = ""
    avro_schema: Path | None = None
    protobuf_descriptor: Path | None = None
    protobuf_message: str = ""
    debezium_time_unit: DebeziumTimeUnit = "ms"
    debezium_decimal_mode: DebeziumDecimals | None = None
    debezium_before: DebeziumBefore = "optional"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_options(options: Mapping[str, str], where: str, project: Path) -> KafkaOptions:
    """The options of a ``WITH``.

    Args:
        options: All options of the ``WITH`` but ``connector``.
        where: The place of the statement, for errors.
        project: The folder that relative paths start from.

    Raises:
        InvalidConfig: Lists every mistake, each with the nearest known spelling.
    """
    mistakes = Mistakes(where)
    own = {name: text for name, text in options.items() if not name.startswith(PASS_THROUGH)}
    values = read_values(own, _OPTIONS, mistakes, (MAX_AHEAD,))
    for path in ("avro_schema", "protobuf_descriptor"):
        if path in values:
            values[path] = project / values[path]
    below = {
        name.removeprefix(PASS_THROUGH): text
        for name, text in options.items()
        if name.startswith(PASS_THROUGH)
    }
    values["properties"] = pass_through(below, _OWN_OPTIONS, _FIXED, mistakes.add)
    values["topics"] = _topics(values, mistakes)
    _require(values, mistakes)
    values["registry"] = _registry(values, mistakes)
    _check_formats(values, mistakes)
    _check_numbers(values, mistakes)
    mistakes.raise_if_any()
    return KafkaOptions(**values)


def _topics(values: dict[str, Any], mistakes: Mistakes) -> tuple[str, ...]:
    given = [name for name in ("topic", "topics", "topic_pattern") if values.get(name)]
    if len(given) != 1:
        problem = "`topic`, `topics` or `topic.pattern` is missing"
        if given:
            problem = " and ".join(f"`{name.replace('_', '.')}`" for name in given)
            problem += " contradict each other"
        mistakes.add(problem, "name the topics in one of the three")
    topic = values.pop("topic", None)
    topics: tuple[str, ...] = (topic,) if topic else values.get("topics", ())
    for each in topics:
        check_topic(each, mistakes.add)
    return topics


def _require(values: dict[str, Any], mistakes: Mistakes) -> None:
    for attribute in ("bootstrap_servers", "group_id"):
        if not values.get(attribute):
            mistakes.add(f"`{attribute.replace('_', '.')}` is missing")
    if values.pop("enable_auto_commit", False):
        mistakes.add("`enable.auto.commit` is always false", _AFTER_THE_SINKS)


def _registry(values: dict[str, Any], mistakes: Mistakes) -> RegistryOptions | None:
    parts = {
        name: values.pop(f"registry_{name}", "")
        for name in ("url", "username", "password", "ca_location")
    }
    return registry_options(parts, mistakes.add)


def _check_formats(values: dict[str, Any], mistakes: Mistakes) -> None:
    kind, key = values.get("format", "json"), values.get("key_format")
    used = {kind, key}
    if values["registry"] and not used & WITH_REGISTRY:
        mistakes.add(f"`schema.registry.url` is of no use to format {kind}")
    if not values["registry"]:
        if "avro" in used and not values.get("avro_schema"):
            mistakes.add("format avro needs `schema.registry.url` or `avro.schema`")
        if "protobuf" in used and not values.get("protobuf_descriptor"):
            mistakes.add("format protobuf needs `schema.registry.url` or `protobuf.descriptor`")
    for name, attribute in (
        ("avro.schema", "avro_schema"),
        ("protobuf.descriptor", "protobuf_descriptor"),
    ):
        if values.get(attribute) and values["registry"]:
            mistakes.add(f"`{name}` and `schema.registry.url` contradict each other")
        if values.get(attribute) and name.partition(".")[0] not in used:
            mistakes.add(f"`{name}` is of no use to format {kind}")
    if bool(values.get("protobuf_descriptor")) != bool(values.get("protobuf_message")):
        mistakes.add("`protobuf.descriptor` and `protobuf.message` go together")
    for attribute in ("csv_delimiter", "csv_null"):
        if attribute in values and "csv" not in used:
            mistakes.add(f"`{attribute.replace('_', '.')}` is of no use to format {kind}")
    problem = problem_with_delimiter(values.get("csv_delimiter", ","))
    if problem:
        mistakes.add(f"`csv.delimiter` {problem}")
    if kind == "debezium-json" and key not in (None, "raw"):
        mistakes.add(
            f"`key.format` = {key} is of no use to format {kind}", "the envelope holds the key too"
        )
    for attribute in ("debezium_time_unit", "debezium_decimal_mode", "debezium_before"):
        if attribute in values and kind != "debezium-json":
            mistakes.add(f"`{attribute.replace('_', '.')}` is of no use to format {kind}")
    columns = values.get("key_columns", ())
    if columns and key in (None, "raw"):
        mistakes.add("`key.columns` needs a `key.format` that has columns", "json, csv, avro, …")
    if key not in (None, "raw") and not columns:
        mistakes.add(f"`key.format` = {key} needs `key.columns`", "the columns that the key holds")


def _check_numbers(values: dict[str, Any], mistakes: Mistakes) -> None:
    for attribute, least in (("max_poll_records", 1), ("split_records", 1)):
        value = values.get(attribute)
        if value is not None and value < least:
            mistakes.add(f"`{attribute.replace('_', '.')}` must be at least {least}")
    high = values.get("backpressure_high", _HIGH)
    low = values.get("backpressure_low", _LOW)
    if high <= low:
        mistakes.add("`backpressure.high.watermark` must be above `backpressure.low.watermark`")
    if values.get("poll_timeout") == timedelta(0):
        mistakes.add("`poll.timeout.ms` must be at least 1")
    pattern = values.get("topic_pattern", "")
    try:
        re.compile(pattern)
    except re.error as error:
        mistakes.add(f"`topic.pattern` is no regular expression: {error}")


def require_columns(options: KafkaOptions, declared: tuple[str, ...], where: str) -> None:
    """Refuse options that the declared columns contradict.

    Raises:
        InvalidConfig: Names the column.
    """
    for name in options.key_columns:
        if name not in declared:
            raise InvalidConfig(where, f"`key.columns` names `{name}`, which is not declared")
    values = [name for name in declared if name not in options.key_columns]
    if options.format == "raw" and len(values) > 1:
        raise InvalidConfig(where, "format raw has one column, the value, of STRING or BINARY")


_AFTER_THE_SINKS: Final = "offsets are written when the sinks have committed"
_FIXED: Final = {
    "enable.auto.commit": ("false", _AFTER_THE_SINKS),
    "enable.auto.offset.store": ("false", _AFTER_THE_SINKS),
    "isolation.level": ("read_committed", "records of an aborted transaction must not be read"),
    "enable.partition.eof": ("true", "a range ends by position"),
    "check.crcs": ("true", "a damaged message must not be read"),
}
_OPTIONS: Final[Known] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "topic": ("topic", str),
    "topics": ("topics", names),
    "topic.pattern": ("topic_pattern", str),
    "group.id": ("group_id", str),
    "format": ("format", one_of(Format)),
    "key.format": ("key_format", one_of(KeyFormat)),
    "key.columns": ("key_columns", names),
    "auto.offset.reset": ("auto_offset_reset", one_of(OffsetReset)),
    "group.offsets": ("group_offsets", one_of(GroupOffsets)),
    "enable.auto.commit": ("enable_auto_commit", flag),
    "max.poll.records": ("max_poll_records", count),
    "poll.timeout.ms": ("poll_timeout", milliseconds),
    "schema.registry.url": ("registry_url", str),
    "schema.registry.username": ("registry_username", str),
    "schema.registry.password": ("registry_password", str),
    "schema.registry.ssl.ca.location": ("registry_ca_location", str),
    "watermark.max.out.of.orderness.ms": ("max_out_of_orderness", milliseconds),
    "watermark.idle.timeout.ms": ("idle_timeout", milliseconds),
    "idle.timeout": ("idle_timeout", or_never(duration, "never")),
    "backpressure.high.watermark": ("backpressure_high", fraction),
    "backpressure.low.watermark": ("backpressure_low", fraction),
    "include.metadata": ("include_metadata", flag),
    "partition.assignment.strategy": (
        "partition_assignment_strategy",
        one_of(AssignmentStrategy),
    ),
    "reader": ("reader", one_of(ReaderKind)),
    "on_gap": ("on_gap", one_of(OnGap)),
    "on_schema_problem": ("on_schema_problem", one_of(OnSchemaProblem)),
    "max.record.bytes": ("max_record_bytes", size),
    "split.records": ("split_records", or_never(count, "never")),
    "connect.timeout.ms": ("connect_timeout", milliseconds),
    "retention.warning": ("retention_warning", fraction),
    "csv.delimiter": ("csv_delimiter", delimiter),
    "csv.null": ("csv_null", str),
    "avro.schema": ("avro_schema", str),
    "protobuf.descriptor": ("protobuf_descriptor", str),
    "protobuf.message": ("protobuf_message", str),
    "debezium.time.unit": ("debezium_time_unit", one_of(DebeziumTimeUnit)),
    "debezium.decimal.mode": ("debezium_decimal_mode", one_of(DebeziumDecimals)),
    "debezium.before": ("debezium_before", one_of(DebeziumBefore)),
}
_OWN_OPTIONS: Final = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "auto.offset.reset",
        "partition.assignment.strategy",
    }
)

"""The options of a Kafka source: names, defaults, and everything that is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from laminar_dagster.clients.kafka.settings import client_settings
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.kafka.options import KafkaOptions, read_options, require_columns

LEAST = {"bootstrap.servers": "b:9092", "topic": "orders", "group.id": "g"}
PROJECT = Path("/project")


def read(**changes: str) -> KafkaOptions:
    named = {name.replace("__", "."): text for name, text in changes.items()}
    return read_options({**LEAST, **named}, "sources.sql:3", PROJECT)


def refused(options: dict[str, str]) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as caught:
        read_options(options, "sources.sql:3", PROJECT)
    assert caught.value.where == "sources.sql:3"
    return caught.value


def test_defaults() -> None:
    options = read()
    assert options == KafkaOptions(bootstrap_servers="b:9092", topics=("orders",), group_id="g")
    assert options.format == "json"
    assert options.key_format is None
    assert options.auto_offset_reset == "earliest"
    assert options.group_offsets == "ignore"
    assert options.max_poll_records == 1000
    assert options.poll_timeout == timedelta(milliseconds=100)
    assert options.registry is None
    assert options.max_out_of_orderness == timedelta(seconds=5)
    assert options.idle_timeout == timedelta(seconds=30)
    assert (options.backpressure_high, options.backpressure_low) == (0.8, 0.5)
    assert options.include_metadata is False
    assert options.partition_assignment_strategy == "cooperative-sticky"


def test_every_option_is_read() -> None:
    options = read_options(
        {
            "bootstrap.servers": "b1:9092,b2:9092",
            "topics": "t1, t2",
            "group.id": "g",
            "format": "avro",
            "key.format": "avro",
            "key.columns": "a, b",
            "auto.offset.reset": "latest",
            "group.offsets": "resume",
            "enable.auto.commit": "false",
            "max.poll.records": "5000",
            "poll.timeout.ms": "50",
            "schema.registry.url": "http://registry:8081",
            "schema.registry.username": "user",
            "schema.registry.password": "secret",
            "watermark.max.out.of.orderness.ms": "3000",
            "watermark.idle.timeout.ms": "60000",
            "backpressure.high.watermark": "0.9",
            "backpressure.low.watermark": "0.6",
            "include.metadata": "true",
            "partition.assignment.strategy": "range",
            "reader": "portable",
            "on_gap": "earliest",
            "on_schema_problem": "fail",
            "max.record.bytes": "1MiB",
            "split.records": "1000",
            "connect.timeout.ms": "1000",
            "retention.warning": "0.25",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.enable.auto.commit": "false",
        },
        "",
        PROJECT,
    )
    assert options.topics == ("t1", "t2")
    assert options.registry is not None
    assert options.registry.url == "http://registry:8081"
    assert "secret" not in repr(options)
    assert options.properties["security.protocol"] == "SASL_SSL"
    assert options.split_records == 1000
    assert options.idle_timeout == timedelta(minutes=1)
    assert options.key_columns == ("a", "b")


def test_never_is_for_ever() -> None:
    assert read(idle__timeout="never").idle_timeout is None


def test_files_are_below_the_project() -> None:
    options = read(format="avro", avro__schema="schemas/click.avsc")
    assert options.avro_schema == PROJECT / "schemas/click.avsc"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"bootstrap.servers": ""}, "`bootstrap.servers` is missing"),
        ({"group.id": ""}, "`group.id` is missing"),
        ({"topic": ""}, "`topic`, `topics` or `topic.pattern` is missing"),
        ({"topics": "a,b"}, "`topic` and `topics` contradict each other"),
        ({"topic.pattern": "a.*"}, "`topic` and `topic.pattern` contradict each other"),
        ({"topic": "a b"}, "cannot be a topic's name"),
        ({"topic": ".."}, "cannot be a topic's name"),
        ({"topic": "", "topics": "a,,b"}, "names with commas between them"),
        ({"topic": "", "topics": "a,a"}, "names something twice"),
        ({"topic": "", "topic.pattern": "("}, "no regular expression"),
        ({"format": "xml"}, "`format` must be one of json, csv, raw, avro, protobuf"),
        ({"auto.offset.reset": "first"}, "`auto.offset.reset` must be one of"),
        ({"max.poll.records": "0"}, "`max.poll.records` must be at least 1"),
        ({"max.poll.records": "many"}, "`max.poll.records` must be a whole number"),
        ({"poll.timeout.ms": "0"}, "`poll.timeout.ms` must be at least 1"),
        ({"split.records": "0"}, "`split.records` must be at least 1"),
        ({"backpressure.high.watermark": "0.5"}, "must be above"),
        ({"backpressure.low.watermark": "0.9"}, "must be above"),
        ({"backpressure.high.watermark": "1.1"}, "a number from 0 to 1"),
        ({"include.metadata": "yes"}, "must be true or false"),
        ({"partition.assignment.strategy": "sticky"}, "must be one of"),
        ({"enable.auto.commit": "true"}, "`enable.auto.commit` is always false"),
        ({"kafka.enable.auto.commit": "true"}, "is always false"),
        ({"kafka.isolation.level": "read_uncommitted"}, "is always read_committed"),
        ({"kafka.group.id": "other"}, "`kafka.group.id` has an option of its own"),
        ({"kafka.bootstrap.servers": "b"}, "has an option of its own"),
        ({"format": "avro"}, "format avro needs `schema.registry.url` or `avro.schema`"),
        ({"format": "protobuf"}, "format protobuf needs"),
        (
            {"format": "protobuf", "protobuf.descriptor": "x.pb"},
            "`protobuf.descriptor` and `protobuf.message` go together",
        ),
        ({"format": "csv", "schema.registry.url": "http://r"}, "is of no use to format csv"),
        ({"avro.schema": "x.avsc"}, "`avro.schema` is of no use to format json"),
        (
            {"format": "avro", "avro.schema": "x", "schema.registry.url": "http://r"},
            "contradict each other",
        ),
        ({"schema.registry.username": "u"}, "`schema.registry.url` is missing"),
        (
            {"schema.registry.url": "http://r", "schema.registry.username": "u"},
            "go together",
        ),
        ({"schema.registry.url": "http://u:p@r"}, "without credentials"),
        ({"csv.delimiter": ";"}, "`csv.delimiter` is of no use to format json"),
        ({"format": "csv", "csv.delimiter": '"'}, "must not be the quote"),
        ({"key.columns": "a"}, "`key.columns` needs a `key.format`"),
        ({"key.format": "json"}, "`key.format` = json needs `key.columns`"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, str], problem: str) -> None:
    assert problem in refused({**LEAST, **changes}).problem


def test_an_unknown_option_is_told_with_the_nearest() -> None:
    error = refused({**LEAST, "max.poll.record": "1"})
    assert error.problem == "unknown option `max.poll.record`"
    assert error.suggestion == "did you mean `max.poll.records`?"


def test_every_mistake_is_told_at_once() -> None:
    error = refused({"format": "xml", "tpoic": "x"})
    for part in ("`format`", "`tpoic`", "`bootstrap.servers`", "`group.id`", "`topic`"):
        assert part in error.problem


def test_a_secret_is_told_in_no_mistake() -> None:
    error = refused({**LEAST, "kafka.sasl.password": "hush", "oops": "1"})
    assert "hush" not in str(error)


def test_columns_of_the_key_are_declared() -> None:
    options = read(key__format="json", key__columns="a")
    require_columns(options, ("a", "b"), "")
    with pytest.raises(InvalidConfig, match="names `a`, which is not declared"):
        require_columns(options, ("b",), "")


def test_raw_has_one_column() -> None:
    with pytest.raises(InvalidConfig, match="one column"):
        require_columns(read(format="raw"), ("a", "b"), "")


def test_properties_reach_the_client() -> None:
    options = read_options({**LEAST, "kafka.fetch.min.bytes": "7"}, "", PROJECT)
    settings = client_settings(options.bootstrap_servers, options.properties)
    assert settings["fetch.min.bytes"] == "7"
    assert settings["bootstrap.servers"] == "b:9092"
    assert settings["reconnect.backoff.ms"] == "100"
    assert settings["reconnect.backoff.max.ms"] == "30000"

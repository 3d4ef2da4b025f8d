from __future__ import annotations

import logging
from pathlib import Path

import pytest

from laminar_dagster.config.model import Place, SinkTable
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import OperatorId, PipelineName, SinkId
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions, Limits, NewTopics, read_options
from laminar_dagster.sinks.kafka.producer import TransactionalProducer, transactional_id
from laminar_dagster.sinks.kafka.sink import KafkaSink

PROJECT = Path("/project")
LEAST = {"bootstrap.servers": "b:9092"}


def table(options: dict[str, str]) -> SinkTable:
    return SinkTable(
        sink_id=SinkId("totals"),
        view=OperatorId("totals"),
        connector="kafka",
        options={**LEAST, **options},
        place=Place("sinks.sql", 3),
    )


def read(options: dict[str, str]) -> KafkaSinkOptions:
    return read_options(table(options), PROJECT)


def refused(options: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read(options)
    assert caught.value.where.endswith("sinks.sql:3")
    return f"{caught.value.problem} | {caught.value.suggestion}"


def test_what_holds_unless_it_is_said_otherwise() -> None:
    options = read({})
    assert options.topic == "totals"
    assert (options.format, options.mode, options.partitioner) == ("json", "append", "murmur2")
    assert options.ledger_topic == "_laminar_ledger"
    assert options.instances == 1
    assert options.new_topics == NewTopics(allowed=True, partitions=-1, replication=-1)
    limits = options.limits
    assert (limits.commit, limits.abort, limits.buffered) == (30, 10, 100_000)
    assert (limits.transaction, limits.rows, limits.bytes) == (60, 3_000_000, 960 * 2**20)


def test_everything_can_be_said() -> None:
    options = read(
        {
            "topic": "t",
            "mode": "upsert",
            "key.columns": "a, b",
            "key.format": "avro",
            "value.columns": "b, c",
            "format": "avro",
            "avro.schema": "row.avsc",
            "schema.registry.url": "http://r:8081",
            "auto.register.schemas": "false",
            "partitioner": "crc32",
            "instances": "3",
            "create": "false",
            "partitions": "12",
            "replication": "2",
            "ledger.topic": "l",
            "transaction.timeout.ms": "120000",
            "transaction.max.rows": "7",
            "transaction.max.bytes": "1MiB",
            "commit_timeout": "5s",
            "abort_timeout": "1s",
            "connect_timeout": "2s",
            "max_buffer_size": "10",
            "kafka.compression.type": "zstd",
        }
    )
    assert (options.key_columns, options.value_columns) == (("a", "b"), ("b", "c"))
    assert options.avro_schema == PROJECT / "row.avsc"
    assert options.properties == {"compression.type": "zstd"}
    assert options.limits == Limits(2, 120, 5, 1, 10, 7, 2**20)
    assert options.new_topics == NewTopics(allowed=False, partitions=12, replication=2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"bootstrap.servers": ""}, "`bootstrap.servers` is empty"),
        ({"topik": "x"}, "did you mean `topic`?"),
        ({"topic": "a b"}, "cannot be a topic's name"),
        ({"topic": "x", "ledger.topic": "x"}, "are the same"),
        ({"mode": "upsert"}, "mode `upsert` needs a key"),
        ({"key": "a"}, "name the columns of the key in `key.columns`"),
        ({"key.columns": "a, A"}, "names a column twice"),
        ({"format": "avrow"}, "did you mean `avro`?"),
        ({"schema.registry.url": "http://r"}, "of no use to formats without a schema"),
        ({"schema.registry.url": "http://u:p@r", "format": "avro"}, "without credentials"),
        ({"auto.register.schemas": "false"}, "of no use without"),
        ({"avro.schema": "x"}, "of no use to format json"),
        ({"instances": "0"}, "whole number from 1 on"),
        ({"commit_timeout": "0s"}, "must be more than nothing"),
        ({"transaction.max.bytes": "many"}, "transaction.max.bytes"),
        ({"kafka.acks": "1"}, "`kafka.acks` is always all"),
        ({"kafka.enable.idempotence": "false"}, "is always true"),
        ({"kafka.transactional.id": "mine"}, "it follows from the names"),
        ({"kafka.bootstrap.servers": "x"}, "has an option of its own"),
        ({"kafka.transaction.timeout.ms": "1"}, "has an option of its own"),
    ],
)
def test_mistakes_are_told_with_what_to_do(options: dict[str, str], problem: str) -> None:
    assert problem in refused(options)


def test_every_mistake_is_told_at_once() -> None:
    told = refused({"mode": "upsert", "topik": "x", "kafka.acks": "0", "instances": "many"})
    assert all(each in told for each in ("needs a key", "topik", "always all", "instances"))


def test_secrets_are_not_shown() -> None:
    secret = {
        "kafka.sasl.password": "hunter2",
        "format": "avro",
        "schema.registry.url": "http://r",
        "schema.registry.username": "me",
        "schema.registry.password": "hunter3",
    }
    options = read(secret)
    sink = KafkaSink.from_table(table(secret), PROJECT, PipelineName("clicks"))
    for text in (repr(options), repr(sink), sink.address):
        assert "hunter" not in text
    assert sink.address == "kafka://b:9092/totals"


def test_no_two_sinks_share_a_transactional_id() -> None:
    assert transactional_id("clicks", "totals", 0) == "laminar.clicks.totals.0"
    assert transactional_id("a.b", "c", 0) != transactional_id("a", "b.c", 0)


@pytest.fixture
def producer_settings(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """What librdkafka says of the producer's configuration, whoever wishes otherwise."""
    wishes = {"acks": "1", "enable.idempotence": "false", "transactional.id": "mine"}
    settings = {"bootstrap.servers": "127.0.0.1:9", "debug": "conf", **wishes}
    with (
        caplog.at_level(logging.DEBUG, "laminar_dagster.sinks.kafka.producer"),
        TransactionalProducer(
            SinkId("totals"), "laminar.clicks.totals.0", settings, Limits(transaction=45)
        ) as producer,
    ):
        # It tells when it is polled; the last line is a topic's.
        for _ in range(200):
            if any("message.timeout.ms = " in line for line in caplog.messages):
                break
            producer._producer.poll(0.05)
    lines = [line.partition("]:   ")[2].partition(" = ") for line in caplog.messages]
    return {name: value for name, equals, value in lines if equals}


def test_the_producer_has_its_transactional_id(producer_settings: dict[str, str]) -> None:
    assert producer_settings["transactional.id"] == "laminar.clicks.totals.0"
    assert producer_settings["transaction.timeout.ms"] == "45000"


def test_the_producer_is_idempotent(producer_settings: dict[str, str]) -> None:
    assert producer_settings["enable.idempotence"] == "true"
    # All in-sync replicas.
    assert producer_settings["request.required.acks"] == "-1"


def test_a_property_that_librdkafka_does_not_take_is_refused_without_its_secrets() -> None:
    settings = {"bootstrap.servers": "b:9092", "sasl.passwort": "hunter2"}
    with pytest.raises(InvalidConfig, match=r"sasl\.passwort") as caught:
        TransactionalProducer(SinkId("totals"), "id", settings, Limits())
    assert "hunter2" not in str(caught.value)

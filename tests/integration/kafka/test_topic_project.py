"""`laminar init --from-topic`: from a topic that somebody fills to a pipeline that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from infra.kafka import KafkaEndpoint
from infra.schema_registry import SchemaRegistryEndpoint
from laminar_dagster.runtime.assembly import assemble
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loading import load_pipelines
from tests.integration.kafka.test_schema_registry import CITY, avro, framed, record, register
from tests.services.kafka import TopicFactory, produce
from tests.unit.cli.conditions import Laminar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.service("kafka")

Init = Callable[..., Any]

ORDER = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp created_at = 3;
  repeated string tags = 4;
}
"""
CLICK = {
    "type": "object",
    "properties": {
        "user": {"type": "integer"},
        "order": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "anything": {},
    },
    "required": ["user"],
}


@pytest.fixture
def topic(kafka_topic: TopicFactory) -> str:
    return kafka_topic(2)


@pytest.fixture
def init(tmp_path: Path, kafka_service: KafkaEndpoint, topic: str) -> Init:
    """Makes a project of the topic, has it validated, and returns what was told of its source."""

    def init(*more: str) -> Any:
        root = tmp_path / "shop"
        given = ("--from-topic", topic, "--bootstrap-servers", kafka_service.bootstrap, *more)
        told = Laminar().json("init", str(root), "--name", "shop", *given)
        made = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        assert made == {*told["files"]}
        (checked,) = Laminar().json("--project", str(root), "validate")["pipelines"]
        assert (checked["pipeline"], checked["warnings"]) == ("shop", [])
        assert told["source"]["topic"] == topic
        assert told["source"]["partitions"] == 2
        return told["source"]

    return init


def source_of(tmp_path: Path) -> str:
    return (tmp_path / "shop" / "dbt_like_configs" / "shop" / "sources.sql").read_text()


def columns_of(told: Any) -> dict[str, str]:
    return {
        each["name"]: each["type"] + ("" if each["nullable"] else " not null")
        for each in told["columns"]
    }


@pytest.mark.service("schema_registry")
def test_columns_of_an_avro_schema(
    init: Init, tmp_path: Path, topic: str, schema_registry_service: SchemaRegistryEndpoint
) -> None:
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    schema = record(id="long", city=CITY, ts=moment, odd=["string", "boolean", "int"])
    number = register(schema_registry_service, f"{topic}-value", schema)
    told = init("--schema-registry", schema_registry_service.url)
    assert columns_of(told) == {
        "id": "bigint not null",
        "city": "struct<zip: int> not null",
        "ts": "timestamp not null",
    }
    assert (told["format"], told["left_out"], told["event_time"]) == ("avro", ["odd"], "ts")
    assert told["origin"] == f"subject {topic}-value, Avro schema {number}"
    assert told["is_guess"] is False
    text = source_of(tmp_path)
    assert text.startswith(f"-- From subject {topic}-value, Avro schema {number}.\n")
    assert "-- Left out, since no column can hold them or be called so: odd\n" in text
    assert "WATERMARK FOR ts AS ts - INTERVAL '10' SECOND" in text
    assert f"'schema.registry.url' = '{schema_registry_service.url}'" in text


@pytest.mark.service("schema_registry")
def test_columns_of_a_protobuf_schema_of_another_subject(
    init: Init, topic: str, schema_registry_service: SchemaRegistryEndpoint
) -> None:
    register(schema_registry_service, f"{topic}-orders", ORDER, "PROTOBUF")
    url = schema_registry_service.url
    told = init("--schema-registry", url, "--subject", f"{topic}-orders")
    assert columns_of(told) == {
        "id": "bigint not null",
        "note": "string",
        "created_at": "timestamp",
        "tags": "array<string> not null",
    }
    assert (told["format"], told["event_time"]) == ("protobuf", "created_at")


@pytest.mark.service("schema_registry")
def test_columns_of_a_json_schema(
    init: Init, tmp_path: Path, topic: str, schema_registry_service: SchemaRegistryEndpoint
) -> None:
    register(schema_registry_service, f"{topic}-value", CLICK, "JSON")
    told = init("--schema-registry", schema_registry_service.url)
    assert columns_of(told) == {
        "user": "bigint not null",
        "order": "string",
        "at": "timestamp",
    }
    assert (told["format"], told["left_out"]) == ("json", ["anything"])
    # Words of SQL are names all the same.
    assert "`order`" in source_of(tmp_path)


def test_columns_are_guessed_of_messages_and_that_is_said(
    init: Init, tmp_path: Path, topic: str, kafka_service: KafkaEndpoint
) -> None:
    good = [
        {"id": number, "ID": 1, "_id": 1, "a b": 1.5, "tags": ["x"], "at": {"d": "2026-01-01"}}
        for number in range(3)
    ]
    for partition, messages in enumerate([good[:2], good[2:]]):
        values = [json.dumps(each).encode() for each in messages]
        produce(kafka_service, topic, values, partition=partition)
    # Nothing, no object, and one that repeats a member.
    produce(kafka_service, topic, [None, b"[]", b'{"id": 1, "id": 2}'], partition=0)
    told = init()
    assert columns_of(told) == {
        "id": "bigint",
        "a b": "double",
        "tags": "array<string>",
        "at": "struct<d: date>",
    }
    assert (told["is_guess"], told["origin"]) == (True, "the newest 5 messages")
    assert (told["left_out"], told["unfit_messages"]) == (["ID", "_id"], 2)
    # Nothing in it is a moment.
    assert told["event_time"] == "_timestamp"
    text = source_of(tmp_path)
    assert text.startswith("-- Guessed from the newest 5 messages of the topic; others may be")
    assert "-- Of these messages 2 do not suit it: they would be dead letters.\n" in text
    assert "`a b`" in text
    assert "'include.metadata' = 'true'" in text


def test_people_are_told_that_it_is_a_guess(
    tmp_path: Path, topic: str, kafka_service: KafkaEndpoint
) -> None:
    produce(kafka_service, topic, [b'{"id": 1, "ts": "2026-01-01T10:00:00Z"}'])
    given = ("--from-topic", topic, "--bootstrap-servers", kafka_service.bootstrap)
    told = Laminar()("init", str(tmp_path / "new"), *given)
    assert told.exit_code == 0
    expected = f"Its source has 2 columns, guessed from the newest 1 message of topic {topic}."
    assert expected in told.stdout
    assert "A guess: look over sources.sql before you build on it." in told.stdout
    assert "  laminar validate --connect\n" in told.stdout
    (checked,) = Laminar().json("--project", str(tmp_path / "new"), "validate")["pipelines"]
    assert checked["pipeline"] == topic.replace("-", "_")


def test_secrets_are_taken_from_the_environment_and_stay_there(
    init: Init,
    tmp_path: Path,
    topic: str,
    kafka_service: KafkaEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    produce(kafka_service, topic, [b'{"id": 1}'])
    monkeypatch.setenv("SHOP_CLIENT", "a-name-nobody-writes-down")
    init("--with", "kafka.client.id=${SHOP_CLIENT}", "--with", "connect.timeout.ms=9000")
    text = source_of(tmp_path)
    assert "'kafka.client.id' = '${SHOP_CLIENT}'" in text
    assert "'connect.timeout.ms' = '9000'" in text
    everything = [path.read_text() for path in (tmp_path / "shop").rglob("*") if path.is_file()]
    assert "nobody-writes-down" not in "".join(everything)


@pytest.mark.parametrize(
    ("messages", "told", "hint"),
    [
        ([], "the topic holds no message to look at", "--schema-registry"),
        ([None], "the topic holds no message to look at", "--schema-registry"),
        ([b"a,b"], "its messages are not JSON objects", "csv"),
        ([b"\x00\x00\x00\x00\x01x"], "a schema registry had their schema", "--schema-registry"),
        ([b'{"a": null}'], "no column can hold or be called like its fields: a", "raw"),
        ([b'{"before": null, "after": {}, "op": "c"}'], "Debezium's envelopes", "debezium-json"),
        ([b'{"payload": {"before": {}, "after": {}, "op": "u"}}'], "Debezium", "debezium-json"),
        ([b'{"_id": 1}'], "no column can hold or be called like its fields: _id", "raw"),
    ],
)
def test_what_nothing_can_be_made_of_is_told(
    tmp_path: Path,
    topic: str,
    kafka_service: KafkaEndpoint,
    messages: list[bytes | None],
    told: str,
    hint: str,
) -> None:
    produce(kafka_service, topic, messages)
    root = tmp_path / "new"
    given = ("--from-topic", topic, "--bootstrap-servers", kafka_service.bootstrap)
    error = Laminar().error("init", str(root), *given, exit_code=2)
    assert told in error["message"]
    assert hint in error["hint"]
    assert not root.exists(), "nothing is made that does not work"


def test_what_is_not_there_is_told_by_name(
    tmp_path: Path,
    topic: str,
    kafka_service: KafkaEndpoint,
    schema_registry_service: SchemaRegistryEndpoint,
) -> None:
    new = str(tmp_path / "new")
    servers = ("--bootstrap-servers", kafka_service.bootstrap)
    error = Laminar().error("init", new, "--from-topic", f"{topic}x", *servers, exit_code=2)
    assert "the cluster has no such topic" in error["message"]
    assert f"did you mean `{topic}`?" in error["hint"]
    there = ("init", new, "--from-topic", topic, *servers)
    registry = ("--schema-registry", schema_registry_service.url)
    error = Laminar().error(*there, *registry, exit_code=2)
    assert f"subject {topic}-value" in error["message"]
    assert "--subject" in error["hint"]
    error = Laminar().error(*there, "--with", "kafka.nonsense=1", exit_code=2)
    assert "nonsense" in error["message"]
    away = ("--bootstrap-servers", "127.0.0.1:1", "--with", "connect.timeout.ms=300")
    error = Laminar().error("init", new, "--from-topic", topic, *away, exit_code=75)
    assert error["kind"] == "source_unavailable"
    error = Laminar().error(
        *there, "--schema-registry", f"{schema_registry_service.url}/elsewhere", exit_code=2
    )
    assert "schema registry" in error["message"]
    assert not Path(new).exists()


@pytest.mark.slow
@pytest.mark.service("schema_registry")
def test_what_was_made_reads_the_topic(
    init: Init,
    tmp_path: Path,
    topic: str,
    kafka_service: KafkaEndpoint,
    schema_registry_service: SchemaRegistryEndpoint,
    spark: SparkSession,
) -> None:
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    schema = record(id="long", city=CITY, ts=moment, tags={"type": "array", "items": "string"})
    number = register(schema_registry_service, f"{topic}-value", schema)
    rows = [{"id": each, "city": {"zip": each}, "ts": each, "tags": ["x"]} for each in range(3)]
    produce(kafka_service, topic, [framed(number, avro(schema, each)) for each in rows])
    init("--schema-registry", schema_registry_service.url)
    root = tmp_path / "shop"
    (loaded,) = load_pipelines([root / "dbt_like_configs" / "shop"], root)
    EpochRunner(assemble(loaded.model, root, lambda: spark)).run()
    (table,) = (root / "output").iterdir()
    found = DeltaTable(table).to_pyarrow_table().select(["id", "city", "tags"]).to_pylist()
    wanted = [{"id": each["id"], "city": each["city"], "tags": each["tags"]} for each in rows]
    assert sorted(found, key=lambda row: int(row["id"])) == wanted

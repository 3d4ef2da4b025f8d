"""Every format end to end: produced to a real broker, decoded, aggregated and put into a sink."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

from infra.kafka import KafkaEndpoint
from infra.schema_registry import SchemaRegistryEndpoint
from laminar_dagster.clients.kafka.options import RegistryOptions
from laminar_dagster.config.project import load_project
from laminar_dagster.core.errors import DecodeFailed, InvalidConfig, RegistryUnavailable
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import EpochNumber, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.sources.kafka.options import KafkaOptions
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.test_schema_registry import avro, framed, record, register
from tests.services.kafka import Outgoing, TopicFactory, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.service("kafka"), pytest.mark.slow]

Run = Callable[..., CheckpointManifest]


@pytest.fixture
def topic(kafka_topic: TopicFactory) -> str:
    return kafka_topic()


@pytest.fixture
def run(tmp_path: Path, spark: SparkSession, kafka_service: KafkaEndpoint, topic: str) -> Run:
    """Runs one epoch of a pipeline that reads the topic: ``(columns, view, sink, **options)``."""
    folder = tmp_path / "dbt_like_configs" / "shop"
    folder.mkdir(parents=True)

    def run(
        columns: str, view: str, sink: str = "", config: str = "", **options: str
    ) -> CheckpointManifest:
        (folder / "pipeline.yml").write_text(f"name: shop\nstore: state\nbuckets: 2\n{config}")
        named = {name.replace("__", "."): text for name, text in options.items()}
        given = ", ".join(f"'{name}' = '{text}'" for name, text in named.items())
        (folder / "shop.sql").write_text(
            f"CREATE SOURCE TABLE orders ({columns}) WITH (connector = 'kafka', "
            f"topic = '{topic}', 'bootstrap.servers' = '{kafka_service.bootstrap}', "
            f"'group.id' = 'g-{topic}', {given});\n"
            f"CREATE MATERIALIZED VIEW found AS {view};\n"
            "CREATE SINK out FROM found WITH (connector = 'sqlite', path = 'out.db', "
            f"table = 'found'{sink});\n"
        )
        (model,) = load_project(tmp_path, {}, known_connectors())
        pipeline = assemble(model, tmp_path, lambda: spark)
        EpochRunner(pipeline).run()
        manifest = newest_manifest(pipeline.checkpoints, survey(pipeline.checkpoints))
        assert manifest is not None
        return manifest

    return run


def rows(tmp_path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        query = f"SELECT {columns} FROM found ORDER BY 1"
        return database.execute(query).fetchall()


def protobuf(number: int, name: str) -> bytes:
    """A message of two fields, spelt out: the encoder under test must not check itself."""
    text = name.encode()
    return b"\x08" + bytes([number]) + b"\x12" + bytes([len(text)]) + text


def test_avro_evolves_in_the_middle_of_an_epoch(
    kafka_service: KafkaEndpoint,
    schema_registry_service: SchemaRegistryEndpoint,
    topic: str,
    run: Run,
    tmp_path: Path,
) -> None:
    old = record(id="int", amount="float", gone="string")
    new = record(id="long", amount="double", note=["null", "string"])
    first = register(schema_registry_service, f"{topic}-old", old)
    second = register(schema_registry_service, f"{topic}-new", new)
    messages = [
        framed(first, avro(old, {"id": 1, "amount": 1.5, "gone": "x"})),
        framed(second, avro(new, {"id": 2, "amount": 2.5, "note": "new"})),
        framed(first, avro(old, {"id": 3, "amount": 3.5, "gone": "y"})),
        framed(999_999, b"who knows"),
        b"\x01no magic",
        framed(second, avro(new, {"id": 2**40, "amount": 4.5, "note": None})),
    ]
    produce(kafka_service, topic, messages)
    manifest = run(
        "id BIGINT, amount DOUBLE, note STRING",
        "SELECT id, amount, note FROM orders",
        format="avro",
        schema__registry__url=schema_registry_service.url,
    )
    assert rows(tmp_path) == [(1, 1.5, None), (2, 2.5, "new"), (3, 3.5, None), (2**40, 4.5, None)]
    assert manifest.sources[0].schema_ids == tuple(sorted((first, second)))
    assert (manifest.counts.read, manifest.counts.dead_lettered) == (6, 2)
    reading = manifest.sources[0].reading
    assert reading is not None
    assert (reading.records, reading.size_bytes) == (6, sum(map(len, messages)))


def test_a_schema_problem_stops_the_pipeline_if_it_is_told_to(
    kafka_service: KafkaEndpoint,
    schema_registry_service: SchemaRegistryEndpoint,
    topic: str,
    run: Run,
) -> None:
    produce(kafka_service, topic, [framed(999_999, b"who knows")])
    with pytest.raises(DecodeFailed, match="999999"):
        run(
            "id BIGINT",
            "SELECT id FROM orders",
            format="avro",
            on_schema_problem="fail",
            schema__registry__url=schema_registry_service.url,
        )


def test_a_registry_that_is_away_is_a_passing_matter(
    kafka_service: KafkaEndpoint, topic: str, run: Run
) -> None:
    produce(kafka_service, topic, [framed(1, b"x")])
    with pytest.raises(RegistryUnavailable) as caught:
        run(
            "id BIGINT",
            "SELECT id FROM orders",
            format="avro",
            schema__registry__url="http://127.0.0.1:9",
        )
    assert caught.value.exit_code == 75


def test_protobuf_by_the_registry(
    kafka_service: KafkaEndpoint,
    schema_registry_service: SchemaRegistryEndpoint,
    topic: str,
    run: Run,
    tmp_path: Path,
) -> None:
    text = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'
    schema_id = register(schema_registry_service, f"{topic}-value", text, "PROTOBUF")
    # The message is the first of its file, which is written as a single zero.
    bodies = [framed(schema_id, b"\0" + protobuf(n, f"n{n}")) for n in range(1, 6)]
    produce(kafka_service, topic, bodies)
    manifest = run(
        "id BIGINT, name STRING",
        "SELECT id, name FROM orders",
        format="protobuf",
        schema__registry__url=schema_registry_service.url,
    )
    assert rows(tmp_path) == [(n, f"n{n}") for n in range(1, 6)]
    assert manifest.sources[0].schema_ids == (schema_id,)


def test_a_table_follows_another_through_debezium(
    kafka_service: KafkaEndpoint, topic: str, run: Run, tmp_path: Path
) -> None:
    def envelope(op: str, before: Any, after: Any) -> bytes:
        return json.dumps({"op": op, "before": before, "after": after, "ts_ms": 1}).encode()

    def user(number: int, name: str) -> dict[str, Any]:
        return {"id": number, "name": name}

    messages: Sequence[bytes | None] = [
        envelope("r", None, user(1, "Ada")),
        envelope("c", None, user(2, "Bob")),
        envelope("c", None, user(3, "Cy")),
        envelope("u", user(2, "Bob"), user(2, "Bea")),
        envelope("d", user(3, "Cy"), None),
        None,
        json.dumps({"status": "END", "id": "571", "event_count": 4}).encode(),
        envelope("t", None, None),
    ]
    produce(kafka_service, topic, messages)
    manifest = run(
        "id BIGINT, name STRING",
        "SELECT id, name, _weight FROM orders",
        sink=", mode = 'upsert', key = 'id'",
        format="debezium-json",
    )
    assert rows(tmp_path) == [(1, "Ada"), (2, "Bea")]
    counts = manifest.counts
    assert (counts.read, counts.added, counts.skipped, counts.dead_lettered) == (8, 1, 2, 1)
    assert counts.is_balanced


def test_what_kafka_knows_of_a_message_is_there_to_be_asked(
    kafka_service: KafkaEndpoint, topic: str, run: Run, tmp_path: Path
) -> None:
    sent = [
        Outgoing(
            json.dumps({"n": n}).encode(),
            key=json.dumps({"who": f"w{n}"}).encode(),
            headers=(("trace", b"t%d" % n),),
            timestamp=1_767_225_600_000 + n * 1000,
        )
        for n in range(200)
    ]
    produce(kafka_service, topic, sent)
    manifest = run(
        "who STRING, n BIGINT, WATERMARK FOR _timestamp",
        "SELECT window_start AS minute, COUNT(*) AS many, MIN(_offset) AS first, "
        "MAX(_partition) AS part, MAX(who) AS last, "
        "MAX(CAST(_headers[0].value AS STRING)) AS trace "
        "FROM orders GROUP BY TUMBLE(_timestamp, INTERVAL '1' MINUTE)",
        include__metadata="true",
        key__format="json",
        key__columns="who",
    )
    assert rows(tmp_path, "many, first, part, last, trace") == [
        (60, 0, 0, "w9", "t9"),
        (60, 60, 0, "w99", "t99"),
        (60, 120, 0, "w179", "t179"),
    ]
    # Without a delay of its own, the watermark has the connector's: five seconds.
    assert manifest.watermark == (1_767_225_600 + 199 - 5) * 1_000_000


@pytest.mark.parametrize(
    ("options", "columns", "messages", "expected", "bad"),
    [
        (
            {"format": "csv", "csv__delimiter": ";"},
            "a INT, b STRING",
            [b"1;x", b"2;y\n", b"z;q", b"3;u\n4;v"],
            [(1, "x"), (2, "y")],
            2,
        ),
        (
            {"format": "raw"},
            "line STRING",
            [b"one", b"two", b"\xff"],
            [("one",), ("two",)],
            1,
        ),
        (
            {"format": "json"},
            "a INT, b STRING",
            [b'{"a": 1, "b": "x"}', b'{\n  "a": 2,\n  "b": "y"\n}', b"[]", b'{"a": "no"}'],
            [(1, "x"), (2, "y")],
            2,
        ),
    ],
    ids=["csv", "raw", "json"],
)
def test_text(
    kafka_service: KafkaEndpoint,
    topic: str,
    run: Run,
    tmp_path: Path,
    options: dict[str, str],
    columns: str,
    messages: list[bytes],
    expected: list[tuple[Any, ...]],
    bad: int,
) -> None:
    produce(kafka_service, topic, messages)
    manifest = run(columns, "SELECT * FROM orders", **options)
    assert rows(tmp_path) == expected
    assert manifest.counts.dead_lettered == bad
    assert manifest.epoch == EpochNumber(1)


def test_columns_that_do_not_suit_the_newest_schema_are_told_before_anything_runs(
    kafka_service: KafkaEndpoint, schema_registry_service: SchemaRegistryEndpoint, topic: str
) -> None:
    schema = record(id="long", name="string")
    register(schema_registry_service, f"{topic}-value", schema)
    options = KafkaOptions(
        bootstrap_servers=kafka_service.bootstrap,
        topics=(topic,),
        group_id="g",
        format="avro",
        registry=RegistryOptions(url=schema_registry_service.url),
    )

    def health(**columns: pa.DataType) -> HealthReport:
        return KafkaSource(SourceId("s"), pa.schema(columns), options).health(())

    assert health(id=pa.int64(), name=pa.string()).healthy
    report = health(id=pa.bool_(), nmae=pa.string())
    assert not report.healthy
    assert isinstance(report.error, InvalidConfig)
    assert f"{topic}-value: `id`" in report.error.problem
    assert "`nmae` is not in the schema" in report.error.problem
    assert report.total_lag == 0


def test_avro_without_a_registry(
    kafka_service: KafkaEndpoint, topic: str, run: Run, tmp_path: Path
) -> None:
    schema = record(id="long", name="string")
    (tmp_path / "person.avsc").write_text(json.dumps(schema))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"id": 7, "name": "Ann"})
    produce(kafka_service, topic, [body.getvalue()])
    run(
        "id BIGINT, name STRING",
        "SELECT id, name FROM orders",
        format="avro",
        avro__schema="person.avsc",
    )
    assert rows(tmp_path) == [(7, "Ann")]

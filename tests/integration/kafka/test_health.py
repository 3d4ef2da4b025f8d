"""`laminar status` and `laminar validate --connect` say what a real broker says."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from infra.kafka import KafkaEndpoint
from laminar_dagster.cli import validate
from laminar_dagster.cli.main import cli
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts, SourceOffsetEntry
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Admission, EpochOutput, Examination
from laminar_dagster.runtime.assembly import build_adapters, known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.sources.kafka.fetching import way_to_fetch
from laminar_dagster.sources.kafka.messages import Wanted
from laminar_dagster.stores.local import LocalStore
from tests.integration.kafka.streams import TopicStream, encoded
from tests.services.kafka import (
    SecureKafka,
    TopicFactory,
    client_settings,
    committed,
    create_topic,
    delete_records,
    delete_topic,
    produce_in_transaction,
)

pytestmark = pytest.mark.service("kafka")

PATIENCE = 30.0
PIPELINE = "name: numbers\nstore: store\n"


class Passing:
    """An engine that goes to the end of what was planned, and computes nothing."""

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        entries = tuple(
            SourceOffsetEntry(
                source_id=each.source_id,
                positions=tuple(part.end for part in each.ranges),
                path=layout.offsets_path(each.source_id),
            )
            for each in plan.sources
        )
        return EpochOutput((), entries, (), (), RecordCounts(), None)

    def examine(self) -> Examination:
        return Examination()


@dataclass
class Project:
    """A project whose one source is a topic."""

    root: Path
    topic: str
    settings: Mapping[str, str]
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "pipeline.yml").write_text(PIPELINE)
        given = {
            "connector": "kafka",
            "topic": self.topic,
            "format": "json",
            "group.id": f"group-{self.topic}",
            **self.settings,
            **self.options,
        }
        options = ",\n  ".join(f"'{name}' = '{value}'" for name, value in given.items())
        sql = f"-- The source.\nCREATE SOURCE TABLE numbers (n BIGINT) WITH (\n  {options}\n);\n"
        (self.folder / "sources.sql").write_text(sql)
        (self.folder / "views.sql").write_text("CREATE VIEW same AS SELECT n FROM numbers;\n")

    @property
    def folder(self) -> Path:
        return self.root / "dbt_like_configs" / "numbers"

    def run_epoch(self, max_records: int | None = None) -> None:
        model = load_pipeline(self.folder, {}, known_connectors())
        pipeline = Pipeline(
            name=model.config.name,
            fingerprint=model.fingerprint,
            checkpoints=CheckpointStore(LocalStore(self.root / "store")),
            engine=Passing(),
            sources=build_adapters(model, self.root).sources,
            sinks=(),
            limits=Admission(max_records=max_records),
        )
        EpochRunner(pipeline).run()

    def laminar(self, *args: str) -> Result:
        return CliRunner().invoke(cli, ["--project", str(self.root), *args])

    def status(self) -> dict[str, Any]:
        told = self.laminar("status", "--json")
        assert told.exit_code == 0, told.output
        found: dict[str, Any] = json.loads(told.stdout)
        return found

    def source(self) -> dict[str, Any]:
        (source,) = self.status()["sources"]
        found: dict[str, Any] = source
        return found

    def connections(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and what was found of the source."""
        told = self.laminar("validate", "--connect", "--json")
        found: dict[str, Any] = json.loads(told.stdout)["pipelines"][0]["connections"][1]
        assert found["part"] == "source numbers"
        return told.exit_code, found


@pytest.fixture
def stream(kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
    return TopicStream(kafka_service, kafka_topic(3), partitions=3)


@pytest.fixture
def project(stream: TopicStream, tmp_path: Path) -> Project:
    return Project(tmp_path, stream.topic, {"bootstrap.servers": stream.endpoint.bootstrap})


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "check_queries", lambda _model, _pipeline, _silent: ())


def broker_says(stream: TopicStream) -> dict[str, int]:
    """The lag of the group by partition, as any tool computes it from the broker's answers."""
    settings = client_settings(stream.endpoint) | {"group.id": f"group-{stream.topic}"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        parts = [TopicPartition(stream.topic, number) for number in range(stream.partitions)]
        found = {}
        for part in committed(consumer, parts):
            low, end = consumer.get_watermark_offsets(part, PATIENCE)
            stood = part.offset if part.offset >= 0 else low
            found[f"{stream.topic}/{part.partition}"] = end - stood
        return found
    finally:
        consumer.close()


def lag_of(source: Mapping[str, Any]) -> dict[str, int]:
    return {each["partition"]: each["lag"] for each in source["lag"]}


def test_lag_is_what_the_broker_says_before_between_and_after_epochs(
    stream: TopicStream, project: Project
) -> None:
    for numbers, partition in ((range(40), 0), (range(7), 2)):
        stream.append(numbers, partition=partition)
    seen = []
    for limit in (10, 15, None):
        source = project.source()
        assert lag_of(source) == broker_says(stream)
        assert source["health"]["total_lag"] == source["waiting"] == sum(lag_of(source).values())
        seen.append(source["waiting"])
        project.run_epoch(limit)
    assert seen == [47, 37, 22]
    assert lag_of(project.source()) == broker_says(stream) == dict.fromkeys(broker_says(stream), 0)
    stream.append(range(3), partition=1)
    assert lag_of(project.source())[f"{stream.topic}/1"] == broker_says(stream)[f"{stream.topic}/1"]


def test_health_names_brokers_group_topics_and_the_last_success(
    stream: TopicStream, project: Project
) -> None:
    stream.append(range(1234))
    health = project.source()["health"]
    assert (health["healthy"], health["last_success"]) == (True, None)
    assert health["message"] == "connected to 1 broker(s), lag 1,234"
    details = health["details"]
    assert details.pop("cluster_id")
    assert details == {
        "brokers": "1",
        "group_id": f"group-{stream.topic}",
        "topics": stream.topic,
        "reader": way_to_fetch("auto", Wanted()),
    }
    project.run_epoch()
    document = project.status()
    health = document["sources"][0]["health"]
    assert health["message"] == "connected to 1 broker(s), lag 0"
    assert health["last_success"] == document["last_epoch"]["committed_at"]
    told = project.laminar("status").stdout
    assert "connected to 1 broker(s), lag 0" in told


def test_records_of_an_open_transaction_are_no_lag(stream: TopicStream, project: Project) -> None:
    stream.append(range(5))
    producer = produce_in_transaction(
        stream.endpoint, stream.topic, [encoded(n) for n in range(3)], end="leave open", partition=0
    )
    assert project.source()["health"]["total_lag"] == 5
    producer.commit_transaction(PATIENCE)
    # The records, and the mark of the transaction's end.
    assert project.source()["health"]["total_lag"] == 9


def test_before_the_first_epoch_lag_begins_where_the_epoch_will(
    stream: TopicStream, tmp_path: Path
) -> None:
    stream.append(range(5))
    servers = {"bootstrap.servers": stream.endpoint.bootstrap}
    latest = Project(tmp_path, stream.topic, servers, {"auto.offset.reset": "latest"})
    assert latest.source()["health"]["total_lag"] == 0


def test_records_that_are_about_to_expire_are_a_warning(
    stream: TopicStream, project: Project
) -> None:
    stream.append(range(100))
    project.run_epoch(50)
    assert project.source()["health"]["headroom"] is None, "nothing was ever deleted"
    delete_records(stream.endpoint, stream.topic, {0: 30})
    document = project.status()
    # 20 of the 70 that are left have been read.
    assert document["sources"][0]["health"]["headroom"] == pytest.approx(20 / 70)
    assert document["warnings"] == []
    delete_records(stream.endpoint, stream.topic, {0: 48})
    (warning,) = project.status()["warnings"]
    assert f"{stream.topic}/0 may soon delete records that were not read: 50 wait" in warning
    assert f"warning: source numbers: {stream.topic}/0" in project.laminar("status").stdout
    # What has happened is told too, with what is left.
    delete_records(stream.endpoint, stream.topic, {0: 60})
    source = project.source()
    assert source["error"]["kind"] == "retention_expired"
    assert (source["health"]["healthy"], source["health"]["total_lag"]) == (False, 40)
    assert source["health"]["headroom"] == 0


# --- what does not answer -------------------------------------------------------------------------


@pytest.mark.usefixtures("without_spark")
def test_validate_tells_what_it_is_connected_to(stream: TopicStream, project: Project) -> None:
    stream.append(range(5))
    code, found = project.connections()
    assert (code, found["error"]) == (0, None)
    assert found["found"] == ("5 records in 1 of 3 partitions; connected to 1 broker(s), lag 5")


@pytest.mark.usefixtures("without_spark")
def test_a_topic_that_is_not_there_is_told_with_its_place(
    stream: TopicStream, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": stream.endpoint.bootstrap}
    project = Project(tmp_path, "no-such-topic", servers)
    code, found = project.connections()
    assert code == 2
    assert found["where"].endswith("sources.sql:2")
    assert (
        "sources.sql:2: source numbers: the cluster has no topic no-such-topic"
        in (found["error"]["message"])
    )
    source = project.source()
    assert source["health"]["healthy"] is False
    assert "no topic no-such-topic" in source["health"]["message"]
    assert project.laminar("status").exit_code == 0


@pytest.mark.usefixtures("without_spark")
def test_a_broker_that_is_away_is_asked_once_and_told_with_the_place(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        servers = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        project = Project(tmp_path, "numbers", servers, {"connect.timeout.ms": "1500"})
        code, found = project.connections()
        assert code == 75
        assert found["error"]["kind"] == "source_unavailable"
        assert "sources.sql:2: source numbers is away" in found["error"]["message"]
        health = project.source()["health"]
        assert (health["healthy"], health["total_lag"]) == (False, None)
        assert health["message"].startswith("source numbers is away")


@pytest.mark.usefixtures("without_spark")
def test_a_wrong_password_is_told_with_the_place_and_never_shown(
    secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    topic = "health-secrets"
    create_topic(secure_kafka.endpoint, topic)
    try:
        settings = secure_kafka.settings("SASL", "PLAIN")
        given = {
            name if name == "bootstrap.servers" else f"kafka.{name}": str(value)
            for name, value in settings.items()
        }
        right = Project(tmp_path / "right", topic, given)
        assert right.connections()[1]["found"].endswith("connected to 1 broker(s), lag 0")
        wrong = Project(tmp_path / "wrong", topic, {**given, "kafka.sasl.password": "hush-hush"})
        for args in (("validate", "--connect"), ("status",)):
            told = wrong.laminar(*args, "--json")
            assert "hush-hush" not in told.output
        code, found = wrong.connections()
        assert (code, found["error"]["kind"]) == (2, "auth_failed")
        assert "sources.sql:2: " in found["error"]["message"]
    finally:
        delete_topic(secure_kafka.endpoint, topic)

"""``laminar txn`` and a transaction that really hangs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException

from infra.kafka import KafkaEndpoint
from laminar_dagster.cli.main import cli
from tests.services.kafka import TopicFactory, produce, produce_in_transaction

pytestmark = pytest.mark.service("kafka")

Laminar = Callable[..., Result]


@pytest.fixture
def topic(kafka_topic: TopicFactory) -> str:
    return kafka_topic(2)


@pytest.fixture
def pipeline() -> str:
    return f"p{uuid.uuid4().hex}"


@pytest.fixture
def laminar(tmp_path: Path, kafka_service: KafkaEndpoint, topic: str, pipeline: str) -> Laminar:
    """The command, in a project whose pipeline writes to the topic and to a folder."""
    folder = tmp_path / "dbt_like_configs" / pipeline
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(f"name: {pipeline}\nstore: ./store\n")
    (folder / "sources.sql").write_text(
        "CREATE SOURCE TABLE clicks (page STRING) WITH"
        " (connector = 'file', path = './clicks', format = 'ndjson');"
    )
    (folder / "models" / "pages.sql").write_text("SELECT page FROM clicks")
    (folder / "sinks.sql").write_text(
        f"CREATE SINK out FROM pages WITH (connector = 'kafka', topic = '{topic}',"
        f" 'bootstrap.servers' = '{kafka_service.bootstrap}');\n"
        "CREATE SINK other FROM pages WITH (connector = 'sqlite', path = './other.db');"
    )
    return lambda *args, **more: CliRunner().invoke(
        cli, ["--project", str(tmp_path), *args], **more
    )


def test_a_hanging_transaction_is_listed_and_ended(
    laminar: Laminar, kafka_service: KafkaEndpoint, topic: str, pipeline: str
) -> None:
    found = laminar("txn", "list")
    assert (found.exit_code, found.stdout) == (0, "No transaction is open.\n")
    identity = f"laminar.{pipeline}.out.0"
    hanging = produce_in_transaction(
        kafka_service, topic, [b"{}"], end="leave open", transactional_id=identity, partition=1
    )
    (listed,) = json.loads(laminar("txn", "list", "--json").stdout)["transactions"]
    assert listed["transactional_id"] == identity
    assert (listed["sink"], listed["state"]) == ("out", "open")
    assert listed["partitions"] == [f"{topic}/1"]
    assert listed["timeout_seconds"] == 60
    assert listed["age_seconds"] < 60
    assert listed["coordinator"] == kafka_service.bootstrap
    shown = laminar("txn", "list").stdout
    assert identity in shown
    assert "open" in shown

    # Nobody ends it by accident.
    assert laminar("txn", "abort", input="n\n").exit_code != 0
    assert laminar("txn", "abort", "--json").exit_code == 2
    assert laminar("txn", "abort", "--id", "another", "--yes").exit_code == 2
    assert identity in laminar("txn", "list").stdout

    ended = laminar("txn", "abort", "--yes")
    assert (ended.exit_code, ended.stdout) == (0, "1 transaction aborted.\n")
    assert json.loads(laminar("txn", "list", "--json").stdout) == {"transactions": []}
    assert laminar("txn", "abort", "--yes").stdout == "No transaction is open.\n"
    with pytest.raises(KafkaException, match="fenced"):
        hanging.commit_transaction(20)
    produce(kafka_service, topic, [b"seen"], partition=1)


def test_a_cluster_that_is_away_is_told_so(laminar: Laminar, tmp_path: Path, pipeline: str) -> None:
    sinks = tmp_path / "dbt_like_configs" / pipeline / "sinks.sql"
    sinks.write_text(
        "CREATE SINK out FROM pages WITH (connector = 'kafka', topic = 't',"
        " 'bootstrap.servers' = '127.0.0.1:1', connect_timeout = '1s');"
    )
    away = laminar("txn", "list")
    assert away.exit_code == 75
    assert "error[sink_unavailable]" in away.stderr

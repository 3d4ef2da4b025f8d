"""Who gets in, and how those are told who do not. Certificates and passwords are real."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from laminar_dagster.core.errors import AuthFailed, LaminarError
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.options import KafkaOptions, ReaderKind
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.streams import NUMBER, encoded, fresh_name
from tests.services.kafka import Door, Mechanism, SecureKafka, create_topic, delete_topic, produce

pytestmark = pytest.mark.service("kafka")

CLOCK = datetime(2030, 1, 1, tzinfo=UTC)
LET_IN: tuple[tuple[Door, Mechanism], ...] = (
    ("SASL", "PLAIN"),
    ("SASL", "SCRAM-SHA-256"),
    ("SASL", "SCRAM-SHA-512"),
    ("SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("MUTUAL", "PLAIN"),
)


@pytest.fixture(scope="module")
def topic(secure_kafka: SecureKafka) -> Any:
    name = fresh_name()
    create_topic(secure_kafka.endpoint, name)
    produce(secure_kafka.endpoint, name, [encoded(n) for n in range(5)])
    yield name
    delete_topic(secure_kafka.endpoint, name)


def source_with(topic: str, settings: Mapping[str, Any], **changes: Any) -> KafkaSource:
    properties = {name: str(value) for name, value in settings.items()}
    servers = properties.pop("bootstrap.servers")
    options = KafkaOptions(
        bootstrap_servers=servers,
        topics=(topic,),
        group_id="secure",
        properties=properties,
        connect_timeout=timedelta(seconds=8),
    )
    return KafkaSource(SourceId("numbers"), NUMBER, replace(options, **changes))


def read(source: KafkaSource) -> list[int]:
    plan = source.plan(None, (), Admission(), CLOCK)
    reader = source.reader()
    return [
        number
        for part in plan.ranges
        for chunk in reader.read(part)
        for number in chunk.rows.column("n").to_pylist()
    ]


@pytest.mark.parametrize("kind", get_args(ReaderKind))
@pytest.mark.parametrize(("door", "mechanism"), LET_IN)
def test_who_has_the_right_papers_reads(
    secure_kafka: SecureKafka, topic: str, door: Door, mechanism: Mechanism, kind: ReaderKind
) -> None:
    source = source_with(topic, secure_kafka.settings(door, mechanism), reader=kind)
    assert read(source) == list(range(5))
    source.acknowledge(())


@pytest.mark.parametrize("mechanism", get_args(Mechanism))
def test_a_wrong_password_is_refused_at_once(
    secure_kafka: SecureKafka, topic: str, mechanism: Mechanism
) -> None:
    settings = {**secure_kafka.settings("SASL", mechanism), "sasl.password": "hush-hush"}
    source = source_with(topic, settings, connect_timeout=timedelta(seconds=120))
    begun = time.monotonic()
    with pytest.raises(AuthFailed) as caught:
        source.plan(None, (), Admission(), CLOCK)
    assert time.monotonic() - begun < 60
    assert "hush-hush" not in str(caught.value)
    assert secure_kafka.password not in str(caught.value)


@pytest.mark.parametrize("kind", ["fast", "portable"])
def test_a_password_that_changes_before_the_read_is_refused_too(
    secure_kafka: SecureKafka, topic: str, kind: ReaderKind
) -> None:
    settings = secure_kafka.settings("SASL", "PLAIN")
    plan = source_with(topic, settings).plan(None, (), Admission(), CLOCK)
    late = source_with(topic, {**settings, "sasl.password": "hush-hush"}, reader=kind)
    with pytest.raises(AuthFailed) as caught:
        list(late.reader().read(plan.ranges[0]))
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("door", ["EXPIRED", "ELSEWHERE"])
def test_a_server_that_shows_a_bad_certificate_is_not_trusted(
    secure_kafka: SecureKafka, topic: str, door: Door
) -> None:
    with pytest.raises(AuthFailed) as caught:
        source_with(topic, secure_kafka.settings(door)).plan(None, (), Admission(), CLOCK)
    assert "certificate" in _whole(caught.value) or "hostname" in _whole(caught.value)


def test_a_server_of_another_authority_is_not_trusted(
    secure_kafka: SecureKafka, topic: str
) -> None:
    other = {"ssl.ca.location": str(secure_kafka.certificates.stranger)}
    settings = {**secure_kafka.settings("SSL"), **other}
    with pytest.raises(AuthFailed, match="certificate"):
        source_with(topic, settings).plan(None, (), Admission(), CLOCK)


def _whole(error: LaminarError) -> str:
    return str(error).lower()

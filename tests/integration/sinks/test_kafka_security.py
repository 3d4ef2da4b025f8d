"""Who gets in, and how those are told who do not. Certificates and passwords are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import AuthFailed, LaminarError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.sinks.kafka.sink import KafkaSink
from tests.integration.sinks.kafka_place import LIMITS, KafkaPlace
from tests.services.kafka import Door, Mechanism, SecureKafka
from tests.unit.sinks.staging import SINK, staged

pytestmark = pytest.mark.service("kafka")

ROWS = pa.table({"key": [1], "value": ["a"]})
LET_IN: tuple[tuple[Door, Mechanism], ...] = (
    ("SASL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("MUTUAL", "PLAIN"),
)


@pytest.fixture
def place(secure_kafka: SecureKafka) -> KafkaPlace:
    return KafkaPlace.new(secure_kafka.endpoint.bootstrap)


def sink_with(place: KafkaPlace, settings: Mapping[str, Any]) -> KafkaSink:
    properties = {name: str(value) for name, value in settings.items()}
    servers = properties.pop("bootstrap.servers")
    options = place.options(SINK, properties=properties, limits=replace(LIMITS, connect=8.0))
    return KafkaSink(SINK, place.pipeline, replace(options, bootstrap_servers=servers))


def refusal(sink: KafkaSink) -> str:
    """What every call is refused with."""
    told: list[LaminarError] = []
    for call in (
        sink.ledger,
        lambda: sink.check(ROWS.schema),
        lambda: sink.commit(EpochNumber(1), staged(ROWS)),
        sink.pending_transactions,
    ):
        with pytest.raises(AuthFailed) as caught:
            call()
        told.append(caught.value)
    assert {each.exit_code for each in told} == {2}
    return "; ".join(map(str, told)).lower()


@pytest.mark.parametrize(("door", "mechanism"), LET_IN)
def test_who_has_the_right_papers_writes(
    secure_kafka: SecureKafka, place: KafkaPlace, door: Door, mechanism: Mechanism
) -> None:
    sink = sink_with(place, secure_kafka.settings(door, mechanism))
    sink.check(ROWS.schema)
    sink.commit(EpochNumber(1), staged(ROWS))
    assert sink.ledger() == 1
    assert place.read(SINK) == [(1, "a")]
    assert secure_kafka.password not in repr(sink)


def test_a_wrong_password_is_refused_and_not_told(
    secure_kafka: SecureKafka, place: KafkaPlace
) -> None:
    settings = {**secure_kafka.settings("SASL", "SCRAM-SHA-256"), "sasl.password": "hush-hush"}
    told = refusal(sink_with(place, settings))
    assert "hush-hush" not in told
    assert "sink table" in told


@pytest.mark.parametrize("door", ["EXPIRED", "ELSEWHERE"])
def test_a_server_that_shows_a_bad_certificate_is_not_trusted(
    secure_kafka: SecureKafka, place: KafkaPlace, door: Door
) -> None:
    told = refusal(sink_with(place, secure_kafka.settings(door)))
    assert "certificate" in told


def test_a_server_of_another_authority_is_not_trusted(
    secure_kafka: SecureKafka, place: KafkaPlace
) -> None:
    other = {"ssl.ca.location": str(secure_kafka.certificates.stranger)}
    assert "certificate" in refusal(sink_with(place, {**secure_kafka.settings("SSL"), **other}))

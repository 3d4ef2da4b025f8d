"""One cluster, one meaning of its errors, told for whoever asked."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.failures import failure_of
from laminar_dagster.core.errors import AuthFailed, SinkUnavailable, SourceUnavailable


def test_an_error_is_told_for_the_one_who_asked() -> None:
    error = KafkaError(KafkaError._BAD_MSG)
    of_source = failure_of(error, Asker.source("clicks"), "ask for offsets")
    of_sink = failure_of(error, Asker.sink("totals"), "ask for offsets")
    assert isinstance(of_source, SourceUnavailable)
    assert isinstance(of_sink, SinkUnavailable)
    assert str(of_sink).startswith("sink totals is away: ask for offsets: ")


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
def test_who_is_refused_is_named(code: int) -> None:
    failure = failure_of(KafkaError(code), Asker.sink("totals"), "b:9092")
    assert isinstance(failure, AuthFailed)
    assert failure.service == "the Kafka cluster of sink totals"


def test_what_passes_is_no_error_to_a_sink_either() -> None:
    assert failure_of(KafkaError(KafkaError._TRANSPORT), Asker.sink("totals"), "b:9092") is None

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from laminar_dagster.core.errors import (
    AuthFailed,
    LaminarError,
    RetentionExpired,
    SourceUnavailable,
)
from laminar_dagster.sources.kafka.failures import failure_of
from laminar_dagster.sources.kafka.troubles import Troubles, next_offset


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._AUTHENTICATION, AuthFailed),
        (KafkaError.SASL_AUTHENTICATION_FAILED, AuthFailed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthFailed),
        (KafkaError.OFFSET_OUT_OF_RANGE, RetentionExpired),
        (KafkaError._AUTO_OFFSET_RESET, RetentionExpired),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SourceUnavailable),
        (KafkaError._UNKNOWN_PARTITION, SourceUnavailable),
        # librdkafka would skip the batch.
        (KafkaError._BAD_MSG, SourceUnavailable),
        (KafkaError._BAD_COMPRESSION, SourceUnavailable),
    ],
)
def test_errors_that_end_a_read(code: int, expected: type[LaminarError]) -> None:
    assert type(failure_of(code, "clicks", "offset 5 of topic[0]")) is expected
    assert type(failure_of(KafkaError(code), "clicks", "offset 5 of topic[0]")) is expected


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_errors_that_pass(code: int) -> None:
    assert failure_of(code, "clicks", "topic[0]") is None


def test_an_error_says_where_and_why() -> None:
    failure = failure_of(KafkaError._BAD_MSG, "clicks", "offset 5 of topic[0]", reason="bad CRC")
    assert str(failure) == "source clicks is away: offset 5 of topic[0]: bad CRC (_BAD_MSG)"


def test_what_is_left_of_a_partition_is_asked_for_only_when_offsets_are_gone() -> None:
    troubles = Troubles("clicks", "topic", 0)
    troubles.note(KafkaError._TRANSPORT, "connection refused", 5, lambda: pytest.fail("asked"))
    assert troubles.last == "connection refused"


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ((7, 9), "offset 7, and its log ends before 9"),
        ((9, 9), "none, and its log ends before 9"),
        (None, "not known"),
    ],
)
def test_what_is_left_of_a_partition_is_told(held: tuple[int, int] | None, text: str) -> None:
    troubles = Troubles("clicks", "topic", 0)
    with pytest.raises(RetentionExpired) as caught:
        troubles.note(KafkaError.OFFSET_OUT_OF_RANGE, "gone", 5, lambda: held)
    assert caught.value.wanted == "offset 5 of topic[0]"
    assert caught.value.earliest == text


def test_statistics_may_not_know_the_partition() -> None:
    told = '{"topics": {"topic": {"partitions": {"0": {"next_offset": 7}}}}}'
    assert next_offset(told, "topic", 0) == 7
    assert next_offset(told, "topic", 1) == -1
    assert next_offset("{}", "topic", 0) == -1


def test_a_certificate_that_is_not_trusted_does_not_get_better_by_waiting() -> None:
    handshake = "ssl://b:9093: SSL handshake failed: certificate verify failed: broker certificate"
    error = failure_of(KafkaError._SSL, "orders", "b:9093", reason=handshake)
    assert isinstance(error, AuthFailed)
    assert failure_of(KafkaError._SSL, "orders", "b:9093", reason="connection reset") is None

"""The Kafka broker: what it keeps, who gets in, and how it ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from infra import kafka, service
from infra.errors import ServiceFailed
from infra.kafka import Kafka, KafkaEndpoint
from infra.load import Deadline
from infra.ports import free_port, is_listening
from tests.services.kafka import (
    Door,
    KafkaWire,
    Mechanism,
    Outgoing,
    SecureKafka,
    TopicFactory,
    create_topic,
    end_offsets,
    produce,
    produce_in_transaction,
    shown,
    start_offsets,
)

pytestmark = pytest.mark.service("kafka")


@contextmanager
def consuming(
    bootstrap: str, topic: str, partition: int = 0, settings: Mapping[str, Any] = {}
) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next ``count`` messages; an error in their stead is not a message."""
    messages: list[Message] = []
    deadline = Deadline(30)
    while len(messages) < count:
        assert not deadline.is_over, f"{len(messages)} of {count} messages"
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            messages.append(message)
    return messages


def values(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    with consuming(bootstrap, topic, settings=settings) as consumer:
        return [message.value() for message in read(consumer, count)]


def refusal(settings: Mapping[str, Any]) -> list[int]:
    """Why a client is not let in, as the codes of its errors; nothing if it is."""
    codes: list[int] = []
    client = Producer(
        {**settings, "error_cb": lambda error: codes.append(error.code()), "log_level": 0}
    )
    try:
        client.list_topics(timeout=3)
    except KafkaException:
        client.poll(0)
        assert codes
        return codes
    return []


def until(true: Callable[[], bool], within: float) -> bool:
    deadline = Deadline(within)
    while not deadline.is_over:
        if true():
            return True
        time.sleep(0.1)
    return False


def test_messages_come_back_as_they_were_sent(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic(2)
    sent = [
        Outgoing(b"one", key=b"k", headers=(("h", b"1"), ("h", None)), timestamp=1_700_000_000_000),
        Outgoing(None, key=b"k", timestamp=1_700_000_000_001),
    ]
    acknowledged = produce(kafka_service, topic, sent, partition=1)
    with consuming(kafka_service.bootstrap, topic, 1) as consumer:
        first, second = read(consumer, 2)
    assert [message.offset() for message in acknowledged] == [0, 1]
    assert (first.key(), first.value(), second.value()) == (b"k", b"one", None)
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (first.timestamp()[1], second.timestamp()[1]) == (1_700_000_000_000, 1_700_000_000_001)
    assert end_offsets(kafka_service, topic) == {0: 0, 1: 2}
    assert start_offsets(kafka_service, topic) == {0: 0, 1: 0}


def test_a_topic_is_not_made_by_mentioning_it(kafka_service: KafkaEndpoint) -> None:
    with pytest.raises(KafkaException) as caught:
        produce(kafka_service, "nobody-made-it", [b"x"], settings={"message.timeout.ms": 3000})
    assert caught.value.args[0].code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._MSG_TIMED_OUT,
    )


def test_what_a_transaction_aborts_is_not_read(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic()
    produce_in_transaction(kafka_service, topic, [b"kept"])
    produce_in_transaction(kafka_service, topic, [b"lost"], end="abort")
    produce_in_transaction(kafka_service, topic, [b"kept too"])
    assert values(kafka_service.bootstrap, topic, 2) == [b"kept", b"kept too"]
    assert end_offsets(kafka_service, topic) == {0: 6}


def test_an_open_transaction_hides_what_comes_after_it(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic()
    writer = produce_in_transaction(kafka_service, topic, [b"undecided"], end="leave open")
    produce(kafka_service, topic, [b"later"])
    with consuming(kafka_service.bootstrap, topic) as consumer:
        assert consumer.poll(1.0) is None
        writer.commit_transaction(30)
        assert [message.value() for message in read(consumer, 2)] == [b"undecided", b"later"]


def test_what_has_expired_is_deleted_within_seconds(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic(config={"retention.ms": "500"})
    produce(kafka_service, topic, [b"a", b"b", b"c"])
    assert until(lambda: start_offsets(kafka_service, topic) == {0: 3}, within=15)
    assert end_offsets(kafka_service, topic) == {0: 3}


def test_what_is_superseded_is_compacted_within_seconds(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    topic = kafka_topic(config=config)
    produce(kafka_service, topic, [Outgoing(b"%d" % n, key=b"k") for n in range(3)])

    def compacted() -> bool:
        # The newest segment is never compacted; a later message begins another.
        produce(kafka_service, topic, [Outgoing(b"x", key=b"other")])
        return read_first(kafka_service, topic) == 2

    assert until(compacted, within=20)


def read_first(endpoint: KafkaEndpoint, topic: str) -> int | None:
    with consuming(endpoint.bootstrap, topic) as consumer:
        return read(consumer, 1)[0].offset()


def test_clients_of_the_wire_do_everything_through_it(
    kafka_service: KafkaEndpoint, kafka_wire: KafkaWire, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [b"a"])
    settings = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
    with consuming(kafka_wire.bootstrap, topic, settings=settings) as consumer:
        assert read(consumer, 1)[0].value() == b"a"
        assert kafka_wire.wire.accepted > 0
        kafka_wire.wire.refuse()
        produce(kafka_service, topic, [b"b"])
        # Of several ways to the broker, none would be left.
        unseen = [consumer.poll(0.5) for _ in range(4)]
        assert not [each for each in unseen if each is not None and each.error() is None]
        kafka_wire.wire.restore()
        assert read(consumer, 1)[0].value() == b"b"
    assert kafka_wire.wire.cuts > 0


@pytest.mark.parametrize("abruptly", [False, True], ids=["stopped", "killed"])
def test_started_again_it_has_its_address_and_its_data(tmp_path: Path, abruptly: bool) -> None:
    with Kafka() as broker:
        first = broker.start(tmp_path)
        create_topic(first, "kept", 2)
        produce(first, "kept", [b"a", b"b"], partition=0)
        produce_in_transaction(first, "kept", [b"c"], partition=1)
        broker.kill() if abruptly else broker.stop()
        assert not is_listening(first.port)
        again = broker.start(tmp_path)
        assert again == first
        assert values(again.bootstrap, "kept", 2) == [b"a", b"b"]
        with consuming(again.bootstrap, "kept", 1) as consumer:
            assert [message.value() for message in read(consumer, 1)] == [b"c"]
            assert consumer.poll(1.0) is None
        # Not of partition 1: a broker that ends soon after a commit may write the marker of that
        # commit a second time when it is back.
        assert end_offsets(again, "kept")[0] == 2
        produce(again, "kept", [b"d"], partition=0)
        assert end_offsets(again, "kept")[0] == 3


def test_another_owner_of_its_data_finds_it_at_another_address(tmp_path: Path) -> None:
    with Kafka() as broker:
        first = broker.start(tmp_path)
        create_topic(first, "kept")
        produce(first, "kept", [b"a"])
    with Kafka() as heir:
        again = heir.start(tmp_path)
        assert (again.cluster, again.passwords) == (first.cluster, first.passwords)
        assert values(again.bootstrap, "kept", 1) == [b"a"]
        heir.stop()
        with socket.create_server(("127.0.0.1", again.port)):
            with pytest.raises(ServiceFailed, match=f"somebody else listens.*{again.port}"):
                heir.start(tmp_path)


def test_a_port_that_is_lost_is_chosen_again(
    tmp_path: Path, kafka_service: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = iter([kafka_service.port])
    for_controllers = iter([kafka_service.taken["CONTROLLER"]])
    monkeypatch.setattr(service, "free_port", lambda: next(offered, None) or free_port())
    monkeypatch.setattr(kafka, "free_port", lambda: next(for_controllers, None) or free_port())
    with Kafka() as broker:
        endpoint = broker.start(tmp_path)
        assert not {*endpoint.taken.values()} & {*kafka_service.taken.values()}
        assert endpoint.cluster != kafka_service.cluster


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("door", ["SASL", "SASL_SSL"])
def test_a_user_gets_in_with_the_password_alone(
    secure_kafka: SecureKafka, door: Door, mechanism: Mechanism
) -> None:
    settings = secure_kafka.settings(door, mechanism)
    assert refusal(settings) == []
    for wrong in ({"sasl.password": "guess"}, {"sasl.username": "nobody"}):
        assert KafkaError._AUTHENTICATION in refusal({**settings, **wrong})


def test_a_user_produces_and_consumes_over_tls(secure_kafka: SecureKafka) -> None:
    create_topic(secure_kafka.endpoint, "secret")
    settings = secure_kafka.settings("SASL_SSL")
    produce(secure_kafka.endpoint, "secret", [b"a"], settings=settings)
    bootstrap = secure_kafka.endpoint.bootstrap_of("SASL_SSL")
    assert values(bootstrap, "secret", 1, **settings) == [b"a"]


def test_a_client_believes_its_own_authority_alone(secure_kafka: SecureKafka) -> None:
    settings = secure_kafka.settings("SSL")
    assert refusal(settings) == []
    stranger = str(secure_kafka.certificates.stranger)
    assert KafkaError._SSL in refusal({**settings, "ssl.ca.location": stranger})


@pytest.mark.parametrize("door", ["EXPIRED", "ELSEWHERE"])
def test_a_client_refuses_a_certificate_that_is_not_good_here_and_now(
    secure_kafka: SecureKafka, door: Door
) -> None:
    settings = secure_kafka.settings(door)
    assert KafkaError._SSL in refusal(settings)
    # Nothing but the certificate is wrong.
    assert refusal({**settings, "enable.ssl.certificate.verification": False}) == []


def test_the_broker_may_ask_a_client_for_a_certificate(secure_kafka: SecureKafka) -> None:
    settings = secure_kafka.settings("MUTUAL")
    assert refusal(settings) == []
    assert refusal({**settings, **shown(secure_kafka.certificates.strange_client)})
    nothing = shown(secure_kafka.certificates.client)
    assert refusal({name: value for name, value in settings.items() if name not in nothing})


def test_passwords_are_neither_in_the_representation_nor_in_the_command_or_its_log(
    tmp_path: Path,
) -> None:
    with Kafka() as broker:
        endpoint = broker.start(tmp_path)
        command = Path(f"/proc/{broker.identity.pid}/cmdline").read_bytes()
        surroundings = Path(f"/proc/{broker.identity.pid}/environ").read_bytes()
    [password] = endpoint.passwords.values()
    assert password not in repr(endpoint)
    assert password.encode() not in command + surroundings
    assert password not in (tmp_path / "kafka.log").read_text()
    assert not (tmp_path / "format.arguments").exists()
    for name in ("server.properties", "passwords"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_it_listens_on_loopback_only(secure_kafka: SecureKafka) -> None:
    for port in secure_kafka.endpoint.taken.values():
        assert is_listening(port)
        assert not is_listening(port, "127.0.0.2")


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    with Kafka({"log.retention.check.interval.ms": "often"}) as broker:
        with pytest.raises(ServiceFailed, match="often"):
            broker.start(tmp_path)

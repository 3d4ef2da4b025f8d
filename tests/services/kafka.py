"""Fixtures for a real Kafka broker, and the few things that tests do with one.

`kafka_service` is one plain broker, `kafka_topic` makes topics in it, `kafka_wire` is a way to it
that fails on command. `secure_kafka` is a second broker with a listener for every way of logging
in and every certificate, right or wrong.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from infra.kafka import Kafka, KafkaEndpoint, Listener, SecurityProtocol
from infra.load import Deadline
from infra.ports import LOOPBACK, reserved_port
from tests.services.faulty_wire import FaultyWire
from tests.services.sharing import Services

if TYPE_CHECKING:
    from infra.certificates import Certificate

_PATIENCE = 30.0
_PROXIED = "PROXIED"
# It serves the tests of all processes.
_HEAP: Final = "768m"
_NO_COORDINATOR = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# Where a topic asks for it, what has expired is deleted, and what is superseded is compacted,
# within a second or two, and so is a transaction aborted that has lasted too long. Elsewhere a
# message may be as old as a test likes.
IMPATIENT = {
    "log.retention.ms": "-1",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be produced.

    Attributes:
        value: None is a tombstone.
        timestamp: In milliseconds since 1970; None is now.
        partition: None lets the key decide.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaWire:
    """A listener of the broker behind a proxy: all traffic of its clients takes the proxy.

    Attributes:
        wire: The proxy, to be told to fail; whole again after the test.
        bootstrap: What clients are given.
    """

    wire: FaultyWire
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Certificates:
    """Certificates of every kind.

    Attributes:
        authority: Whose it is who signed everything here, and whose the broker asks of clients.
        stranger: Whose it is who signed nothing that the broker has.
        server: For this machine.
        expired: For this machine, an hour ago.
        elsewhere: For another machine.
        client: For a client.
        strange_client: For a client, signed by the stranger.
    """

    authority: Path
    stranger: Path
    server: Certificate
    expired: Certificate
    elsewhere: Certificate
    client: Certificate
    strange_client: Certificate


@dataclass(frozen=True, slots=True)
class SecureKafka:
    """A broker with a listener for each of `Door`.

    Attributes:
        endpoint: Its plain listener lets everybody in, as tests have to prepare something.
        certificates: What its listeners show, and what they ask for.
        user: Who may log in.
    """

    endpoint: KafkaEndpoint
    certificates: Certificates
    user: str

    @property
    def password(self) -> str:
        """The user's, for every mechanism."""
        return self.endpoint.passwords[self.user]

    def settings(self, door: Door, mechanism: Mechanism = "SCRAM-SHA-512") -> dict[str, Any]:
        """What a client needs that is let in by ``door``; a test of a refusal changes one."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.endpoint.bootstrap_of(door),
            "security.protocol": _PROTOCOLS[door],
        }
        if "SASL" in _PROTOCOLS[door]:
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if "SSL" in _PROTOCOLS[door]:
            settings["ssl.ca.location"] = str(self.certificates.authority)
        if door == "MUTUAL":
            settings |= shown(self.certificates.client)
        return settings


Door = Literal["SASL", "SSL", "MUTUAL", "SASL_SSL", "EXPIRED", "ELSEWHERE"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_PROTOCOLS: dict[Door, SecurityProtocol] = {
    "SASL": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}


class TopicFactory(Protocol):
    """Makes a topic that no other test uses, and returns its name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] = {}) -> str: ...


def shown(certificate: Certificate) -> dict[str, Any]:
    """The settings of a client that shows a certificate."""
    return {
        "ssl.certificate.location": str(certificate.certificate),
        "ssl.key.location": str(certificate.key),
    }


def create_topic(
    endpoint: KafkaEndpoint, name: str, partitions: int = 1, config: Mapping[str, str] = {}
) -> None:
    """Create a topic and wait until it can be used."""
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config))
    admin = AdminClient(client_settings(endpoint))
    admin.create_topics([topic], operation_timeout=_PATIENCE)[name].result(_PATIENCE)
    _wait_for_partitions(admin, name, partitions)


def grow_topic(endpoint: KafkaEndpoint, name: str, partitions: int) -> None:
    """Give a topic more partitions, so many in all."""
    request = [NewPartitions(name, partitions)]  # type: ignore[no-untyped-call, unused-ignore]
    admin = AdminClient(client_settings(endpoint))
    admin.create_partitions(request, operation_timeout=_PATIENCE)[name].result(_PATIENCE)
    _wait_for_partitions(admin, name, partitions)


def delete_topic(endpoint: KafkaEndpoint, name: str) -> None:
    """Delete a topic; one that is gone already is no error."""
    admin = AdminClient(client_settings(endpoint))
    try:
        admin.delete_topics([name], operation_timeout=_PATIENCE)[name].result(_PATIENCE)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
    _wait_for_partitions(admin, name, 0)


def _wait_for_partitions(admin: AdminClient, name: str, wanted: int) -> None:
    """Wait for the broker's own list: it hears of a change after the controller has made it."""
    deadline = Deadline(_PATIENCE)
    while True:
        known = admin.list_topics(timeout=_PATIENCE).topics.get(name)
        if (len(known.partitions) if known else 0) == wanted:
            return
        if deadline.is_over:
            raise TimeoutError(f"topic {name} has not {wanted} partitions after {_PATIENCE:g} s")
        time.sleep(0.02)


def delete_records(endpoint: KafkaEndpoint, topic: str, before: Mapping[int, int]) -> None:
    """Delete what stands before an offset of each partition, as retention would."""
    parts = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    # Kept until all is done: a client that goes takes its requests along.
    admin = AdminClient(client_settings(endpoint))
    for done in admin.delete_records(parts).values():
        done.result(_PATIENCE)


def produce(
    endpoint: KafkaEndpoint,
    topic: str,
    messages: Sequence[Outgoing | bytes | None],
    *,
    partition: int | None = None,
    settings: Mapping[str, Any] = {},
) -> list[Message]:
    """Produce in order, wait until the broker has everything, and return what it acknowledged.

    Args:
        endpoint: The broker.
        topic: Has to exist.
        messages: Bare values are messages without a key.
        partition: For messages that name none.
        settings: The producer's own, over those that are needed.

    Raises:
        KafkaException: The broker refused a message.
    """
    producer = Producer(client_settings(endpoint) | {"enable.idempotence": True, **settings})
    return send(producer, topic, messages, partition)


def produce_in_transaction(
    endpoint: KafkaEndpoint,
    topic: str,
    messages: Sequence[Outgoing | bytes | None],
    *,
    end: Literal["commit", "abort", "leave open"] = "commit",
    transactional_id: str | None = None,
    partition: int | None = None,
) -> Producer:
    """Produce in one transaction and end it as told; an open one ends with the producer returned.

    Raises:
        KafkaException: The broker refused a message or the transaction.
    """
    identity = transactional_id or f"test-{uuid.uuid4().hex}"
    producer = Producer(client_settings(endpoint) | {"transactional.id": identity})
    producer.init_transactions(_PATIENCE)
    producer.begin_transaction()
    send(producer, topic, messages, partition)
    if end == "commit":
        producer.commit_transaction(_PATIENCE)
    elif end == "abort":
        producer.abort_transaction(_PATIENCE)
    return producer


def send(
    producer: Producer,
    topic: str,
    messages: Sequence[Outgoing | bytes | None],
    partition: int | None = None,
) -> list[Message]:
    """Send in order with a producer that is there, within its transaction if it has one.

    Raises:
        KafkaException: The broker refused a message.
    """
    done: list[Message] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            done.append(message)
        else:
            errors.append(error)

    for each in messages:
        message = each if isinstance(each, Outgoing) else Outgoing(each)
        chosen = message.partition if message.partition is not None else partition
        details: dict[str, Any] = {"key": message.key, "headers": list(message.headers)}
        if chosen is not None:
            details["partition"] = chosen
        if message.timestamp is not None:
            details["timestamp"] = message.timestamp
        producer.produce(topic, message.value, on_delivery=delivered, **details)
        producer.poll(0)
    left = producer.flush(_PATIENCE)
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise TimeoutError(f"{left} messages were not acknowledged within {_PATIENCE:g} s")
    return done


def committed(member: Consumer, parts: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Where a group stands, as its members are told; an offset below 0 is none.

    The first group of a cluster has to wait for its coordinator.
    """
    deadline = Deadline(_PATIENCE)
    while True:
        try:
            return member.committed(list(parts), _PATIENCE)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR or deadline.is_over:
                raise
        time.sleep(0.05)


def start_offsets(endpoint: KafkaEndpoint, topic: str) -> dict[int, int]:
    """The first offset that is still there, by partition."""
    return {partition: low for partition, (low, _) in _watermarks(endpoint, topic).items()}


def end_offsets(endpoint: KafkaEndpoint, topic: str) -> dict[int, int]:
    """The offset that the next message gets, by partition."""
    return {partition: high for partition, (_, high) in _watermarks(endpoint, topic).items()}


def client_settings(endpoint: KafkaEndpoint) -> dict[str, Any]:
    """What every client of the plain listener needs."""
    return {"bootstrap.servers": endpoint.bootstrap}


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker of a run.

    Attributes:
        folder: Its own; whoever takes a way says so here.
        ways: Listeners that send clients to a port at which nobody listens yet: each is for the
            wire of one process.
    """

    endpoint: KafkaEndpoint
    folder: Path
    ways: tuple[str, ...]


@contextmanager
def _running_broker(ways: int, folder: Path) -> Iterator[Broker]:
    with ExitStack() as ports:
        listeners = [
            _listener_at(f"{_PROXIED}{number}", ports.enter_context(reserved_port()))
            for number in range(ways)
        ]
        with Kafka(IMPATIENT, listeners=listeners, heap=_HEAP) as kafka:
            endpoint = kafka.start(folder)
            yield Broker(endpoint, folder, tuple(listener.name for listener in listeners))


def _listener_at(name: str, port: int) -> Listener:
    return Listener(name, advertise=lambda _: (LOOPBACK, port))


@contextmanager
def _taken(broker: Broker) -> Iterator[str]:
    """A way that no other process has; it is free again when the process dies."""
    for way in broker.ways:
        with (broker.folder / f"{way}.taken").open("a") as mark:
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield way
            return
    raise AssertionError(f"all {len(broker.ways)} ways to the broker are taken")


@pytest.fixture(scope="session")
def _broker(services: Services) -> Broker:
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return services.require("kafka", partial(_running_broker, processes))


@pytest.fixture(scope="session")
def kafka_service(_broker: Broker) -> KafkaEndpoint:
    """One broker per run."""
    return _broker.endpoint


def _certificates(folder: Path) -> Certificates:
    # Only who asks for them needs what makes them.
    from infra.certificates import Authority

    authority = Authority(folder / "authority")
    stranger = Authority(folder / "stranger", "a stranger's authority")
    return Certificates(
        authority=authority.file,
        stranger=stranger.file,
        server=authority.issue("server"),
        expired=authority.issue("expired", expired=True),
        elsewhere=authority.issue("elsewhere", hosts=["elsewhere.invalid"]),
        client=authority.issue("client", hosts=["client.invalid"]),
        strange_client=stranger.issue("client", hosts=["client.invalid"]),
    )


@contextmanager
def _running_secure_broker(folder: Path) -> Iterator[SecureKafka]:
    user, made = "laminar", _certificates(folder)
    shows: dict[Door, Certificate] = {"EXPIRED": made.expired, "ELSEWHERE": made.elsewhere}
    listeners = [
        Listener(
            door,
            protocol,
            certificate=shows.get(door, made.server) if "SSL" in protocol else None,
            client_authority=made.authority if door == "MUTUAL" else None,
        )
        for door, protocol in _PROTOCOLS.items()
    ]
    with Kafka(IMPATIENT, listeners=listeners, users=[user]) as kafka:
        yield SecureKafka(kafka.start(folder / "broker"), made, user)


@pytest.fixture(scope="session")
def secure_kafka(services: Services) -> SecureKafka:
    """One broker with every kind of listener per run."""
    return services.require("secure_kafka", _running_secure_broker)


@pytest.fixture(scope="session")
def kafka_proxy(_broker: Broker) -> Iterator[KafkaWire]:
    """The same broker, by way of a proxy of this process. Whoever makes it fail restores it."""
    endpoint = _broker.endpoint
    with _taken(_broker) as way:
        _, port = endpoint.addresses[way]
        with FaultyWire(LOOPBACK, endpoint.taken[way], port=port) as wire:
            yield KafkaWire(wire, endpoint.bootstrap_of(way))


@pytest.fixture
def kafka_wire(kafka_proxy: KafkaWire) -> Iterator[KafkaWire]:
    """The same, whole again after the test."""
    yield kafka_proxy
    kafka_proxy.wire.restore()


@pytest.fixture
def kafka_topic(kafka_service: KafkaEndpoint) -> Iterator[TopicFactory]:
    """A function that makes topics; they are deleted after the test."""
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, str] = {}) -> str:
        name = f"test-{uuid.uuid4().hex}"
        create_topic(kafka_service, name, partitions, config)
        made.append(name)
        return name

    yield make
    for name in made:
        delete_topic(kafka_service, name)


def _watermarks(endpoint: KafkaEndpoint, topic: str) -> dict[int, tuple[int, int]]:
    consumer = Consumer(client_settings(endpoint) | {"group.id": "watermarks"})
    try:
        known = consumer.list_topics(topic, _PATIENCE).topics[topic].partitions
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), _PATIENCE)
            for partition in sorted(known)
        }
    finally:
        consumer.close()

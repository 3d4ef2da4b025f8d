"""Brokers that die, networks that fail, others in the group, records that go away.

Whatever happens, a read ends with every record once and in order, or with a named error in the time
that it was given, and the next attempt succeeds. It never leaves something out in silence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition

from infra.kafka import Kafka, KafkaEndpoint
from infra.load import Deadline
from infra.wire_requests import kafka_kinds
from laminar_dagster.core.errors import AcknowledgeFailed, RetentionExpired, SourceUnavailable
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.reading import SIPS, Kind, wait_for
from tests.integration.kafka.streams import (
    CLOCK,
    TopicStream,
    are_same,
    bounds,
    encoded,
    ends,
    placed_numbers,
    read_plan,
)
from tests.services.kafka import (
    IMPATIENT,
    KafkaWire,
    Outgoing,
    TopicFactory,
    client_settings,
    create_topic,
    delete_records,
    produce,
    produce_in_transaction,
)

pytestmark = pytest.mark.service("kafka")

NO_LIMIT: Final = Admission()
# More than three chunks, of which a reader that sips holds one ready at most.
MANY: Final = 65_000
SIPPING: Final[Mapping[str, Any]] = {
    "properties": SIPS,
    "backpressure_high": 0.0002,
    "backpressure_low": 0.0001,
}
LONG: Final = timedelta(seconds=90)
SHORT: Final = timedelta(seconds=2)

# Of Kafka's protocol.
FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 1, 2, 3, 8, 10


@pytest.fixture
def stream(kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
    return TopicStream(kafka_service, kafka_topic())


def first_plan(source: KafkaSource, limits: Admission = NO_LIMIT) -> SourcePlan:
    return source.plan(None, (), limits, CLOCK)


def numbers_of(source: KafkaSource, plan: SourcePlan, partition: int = 0) -> list[int]:
    return [number for _, number in placed_numbers(read_plan(source, plan)[partition])]


@contextmanager
def gives_up_within(seconds: float) -> Iterator[None]:
    """Ends with the error of a source that is away, in the time that it was given and a little."""
    began = time.monotonic()
    with pytest.raises(SourceUnavailable) as caught:
        yield
    assert caught.value.exit_code == 75
    assert time.monotonic() - began < seconds + 6


# --- the broker -----------------------------------------------------------------------------------


@dataclass
class OwnBroker:
    """A broker that a test may end."""

    kafka: Kafka
    endpoint: KafkaEndpoint
    folder: Path

    def stream(self, topic: str) -> TopicStream:
        create_topic(self.endpoint, topic)
        return TopicStream(self.endpoint, topic)

    @contextmanager
    def coming_back(self) -> Iterator[None]:
        """It starts while the block goes on."""
        thread = threading.Thread(target=self.kafka.start, args=(self.folder,))
        thread.start()
        try:
            yield
        finally:
            thread.join()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    folder = tmp_path_factory.mktemp("own_kafka")
    with Kafka(IMPATIENT) as kafka:
        yield OwnBroker(kafka, kafka.start(folder), folder)


def test_the_broker_is_killed_while_an_epoch_is_planned(broker: OwnBroker) -> None:
    stream = broker.stream("planned")
    stream.append(range(50))
    writer = produce_in_transaction(
        stream.endpoint, stream.topic, [encoded(50)], end="leave open", partition=0
    )
    source = stream.open(connect_timeout=LONG)
    first = first_plan(source, Admission(max_records=20))
    broker.kafka.kill()
    with gives_up_within(2):
        stream.open(connect_timeout=SHORT).plan(first, ends(first), NO_LIMIT, CLOCK)
    with broker.coming_back():
        second = source.plan(first, ends(first), NO_LIMIT, CLOCK)
    # Not one record less than before, and none of what is undecided.
    assert bounds(second.ranges[0]) == (0, 20, 50)
    assert numbers_of(source, second) == list(range(20, 50))
    writer.commit_transaction(60)
    wait_for(lambda: ends(source.plan(second, ends(second), NO_LIMIT, CLOCK))[0].offset == 52)
    third = source.plan(second, ends(second), NO_LIMIT, CLOCK)
    assert numbers_of(source, third) == [50]


def test_the_broker_is_killed_while_a_range_is_read(broker: OwnBroker) -> None:
    stream = broker.stream("read")
    stream.append(range(MANY))
    (part,) = first_plan(stream.open()).ranges
    short, long = (
        stream.open(connect_timeout=patience, **SIPPING).reader() for patience in (SHORT, LONG)
    )
    attempt = short.read(part)
    assert placed_numbers([next(attempt)])
    broker.kafka.kill()
    with gives_up_within(2):
        list(attempt)
    with broker.coming_back():
        again = list(long.read(part))
    assert placed_numbers(again) == [(each, each) for each in range(MANY)]


def test_the_broker_is_restarted_while_a_range_is_read(broker: OwnBroker) -> None:
    stream = broker.stream("restarted")
    stream.append(range(MANY))
    (part,) = first_plan(stream.open()).ranges
    attempt = stream.open(connect_timeout=LONG, **SIPPING).reader().read(part)
    found = [next(attempt)]
    broker.kafka.stop()
    with broker.coming_back():
        found += attempt
    assert placed_numbers(found) == [(each, each) for each in range(MANY)]


# --- the network ----------------------------------------------------------------------------------

Fault = Literal["cut", "swallow"]
faults = pytest.mark.parametrize("fault", ["cut", "swallow"])


def arm(wire: KafkaWire, fault: Fault, api: int) -> Callable[[], bool]:
    """Have the next request of a kind fail; tells whether it did."""
    met: list[bytes] = []

    def matches(request: bytes) -> bool:
        is_met = api in kafka_kinds(request)
        met.extend([request] * is_met)
        return is_met

    if fault == "cut":
        wire.wire.cut_next_request(matches)
    else:
        wire.wire.swallow_next_reply(matches)
    return lambda: bool(met)


@faults
@pytest.mark.parametrize("api", [METADATA, LIST_OFFSETS])
def test_a_request_is_lost_while_an_epoch_is_planned(
    stream: TopicStream, kafka_wire: KafkaWire, fault: Fault, api: int
) -> None:
    stream.append(range(10))
    source = stream.open(bootstrap_servers=kafka_wire.bootstrap)
    has_failed = arm(kafka_wire, fault, api)
    assert first_plan(source) == first_plan(stream.open())
    assert has_failed()


@faults
def test_a_request_is_lost_while_a_range_is_read(
    stream: TopicStream, kafka_wire: KafkaWire, fault: Fault, kind: Kind
) -> None:
    stream.append(range(MANY))
    plan = first_plan(stream.open())
    whole = read_plan(stream.open(), plan)[0]
    assert placed_numbers(whole) == [(each, each) for each in range(MANY)]
    source = stream.open(reader=kind, bootstrap_servers=kafka_wire.bootstrap, **SIPPING)
    attempt = source.reader().read(plan.ranges[0])
    found = [next(attempt)]
    has_failed = arm(kafka_wire, fault, FETCH)
    found += attempt
    assert has_failed()
    assert are_same(found, whole)


@faults
@pytest.mark.parametrize("api", [FIND_COORDINATOR, OFFSET_COMMIT])
def test_a_request_is_lost_while_the_group_is_told(
    stream: TopicStream, kafka_wire: KafkaWire, fault: Fault, api: int
) -> None:
    stream.append(range(10))
    source = stream.open(bootstrap_servers=kafka_wire.bootstrap)
    positions = ends(first_plan(source))
    has_failed = arm(kafka_wire, fault, api)
    source.acknowledge(positions)
    assert has_failed()
    assert stood(stream, f"group-{stream.topic}") == 10


def test_connections_that_break_while_the_group_is_told_end_no_process(
    stream: TopicStream, kafka_wire: KafkaWire
) -> None:
    stream.append(range(10))
    source = stream.open(bootstrap_servers=kafka_wire.bootstrap, connect_timeout=SHORT)
    positions = ends(first_plan(source))
    is_over = threading.Event()

    def break_them() -> None:
        while not is_over.wait(0.02):
            kafka_wire.wire.cut()

    breaking = threading.Thread(target=break_them)
    breaking.start()
    try:
        for _ in range(6):
            with suppress(AcknowledgeFailed):
                source.acknowledge(positions)
    finally:
        is_over.set()
        breaking.join()
    assert kafka_wire.wire.cuts
    source.acknowledge(positions)
    assert stood(stream, f"group-{stream.topic}") == 10


def test_a_slow_network_is_only_slow(stream: TopicStream, kafka_wire: KafkaWire) -> None:
    stream.append(range(100))
    kafka_wire.wire.delay(0.3)
    source = stream.open(bootstrap_servers=kafka_wire.bootstrap)
    plan = first_plan(source)
    assert numbers_of(source, plan) == list(range(100))
    source.acknowledge(ends(plan))
    assert stood(stream, f"group-{stream.topic}") == 100


def test_without_a_network_everything_gives_up_in_time(
    stream: TopicStream, kafka_wire: KafkaWire
) -> None:
    stream.append(range(10))
    options = {"bootstrap_servers": kafka_wire.bootstrap, "connect_timeout": SHORT}
    source = stream.open(**options)
    plan = first_plan(source)
    kafka_wire.wire.refuse()
    with gives_up_within(2):
        source.plan(plan, ends(plan), NO_LIMIT, CLOCK)
    with gives_up_within(2):
        stream.open(**options).verify(plan)
    with gives_up_within(2):
        read_plan(source, plan)
    with pytest.raises(AcknowledgeFailed):
        source.acknowledge(ends(plan))
    kafka_wire.wire.restore()
    source.verify(plan)
    assert numbers_of(source, plan) == list(range(10))
    assert source.plan(plan, ends(plan), NO_LIMIT, CLOCK).ranges[0].is_empty
    source.acknowledge(ends(plan))
    assert stood(stream, f"group-{stream.topic}") == 10


# --- others in the group --------------------------------------------------------------------------


def stood(stream: TopicStream, group: str) -> int:
    """Where a group stands in the first partition."""
    consumer = Consumer(client_settings(stream.endpoint) | {"group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(stream.topic, 0)], 30)
        return int(found.offset)
    finally:
        consumer.close()


class Members:
    """Consumers that come and go, read, and write down where they stand."""

    def __init__(self, stream: TopicStream, group: str) -> None:
        self.assignments = self.messages = 0
        self._stream, self._group = stream, group
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._come_and_go) for _ in range(2)]

    def __enter__(self) -> Members:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _come_and_go(self) -> None:
        settings = client_settings(self._stream.endpoint) | {
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
        }
        while not self._stop.is_set():
            consumer = Consumer(settings)
            consumer.subscribe([self._stream.topic], on_assign=self._assigned)
            leaves = time.monotonic() + 1.0
            while time.monotonic() < leaves and not self._stop.is_set():
                self.messages += len(consumer.consume(20, 0.1))
            consumer.close()

    def _assigned(self, *_: object) -> None:
        self.assignments += 1


def test_a_group_that_is_rebalanced_changes_nothing(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    stream = TopicStream(kafka_service, kafka_topic(2))
    own = f"group-{stream.topic}"
    found: dict[int, list[int]] = {0: [], 1: []}
    source = stream.open()
    plan: SourcePlan | None = None
    with ExitStack() as stack:
        groups = [stack.enter_context(Members(stream, group)) for group in (own, f"other-{own}")]
        deadline = Deadline(60)
        turns = 0
        while turns < 8 or any(each.assignments < 4 or not each.messages for each in groups):
            assert not deadline.is_over, "nobody came and went"
            for partition in found:
                stream.append(range(turns * 20, turns * 20 + 20), partition)
            plan = source.plan(plan, ends(plan) if plan else (), Admission(max_records=30), CLOCK)
            for partition, chunks in read_plan(source, plan).items():
                found[partition] += [number for _, number in placed_numbers(chunks)]
            # Those that are in the group may keep us out of it.
            with suppress(AcknowledgeFailed):
                source.acknowledge(ends(plan))
            turns += 1
    assert plan is not None
    for _ in range(turns):
        plan = source.plan(plan, ends(plan), Admission(max_records=30), CLOCK)
        for partition, chunks in read_plan(source, plan).items():
            found[partition] += [number for _, number in placed_numbers(chunks)]
    assert found == {0: list(range(turns * 20)), 1: list(range(turns * 20))}
    source.acknowledge(ends(plan))
    assert stood(stream, own) == turns * 20


# --- records that go away -------------------------------------------------------------------------


def test_records_expire_between_plan_and_read(stream: TopicStream, kind: Kind) -> None:
    stream.append(range(10))
    source = stream.open(reader=kind)
    plan = first_plan(source)
    delete_records(stream.endpoint, stream.topic, {0: 1})
    with pytest.raises(RetentionExpired, match="offset 0 of"):
        source.verify(plan)
    with pytest.raises(RetentionExpired, match="offset 0 of"):
        read_plan(source, plan)


def test_records_expire_while_they_are_read(stream: TopicStream, kind: Kind) -> None:
    stream.append(range(MANY))
    source = stream.open(reader=kind, **SIPPING)
    (part,) = first_plan(source).ranges
    attempt = source.reader().read(part)
    next(attempt)
    delete_records(stream.endpoint, stream.topic, {0: MANY - 1})
    with pytest.raises(RetentionExpired, match=rf"offset {MANY - 1}, and its log ends"):
        list(attempt)


def test_compaction_takes_records_out_of_a_range_that_was_read(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    """Such a range is read with what is left of it; nothing else of it changes."""
    eager = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    stream = TopicStream(kafka_service, kafka_topic(config=eager))
    sent = [Outgoing(encoded(each), b"%d" % (each % 3)) for each in range(30)]
    produce(kafka_service, stream.topic, sent)
    source = stream.open()
    plan = first_plan(source)
    before = placed_numbers(read_plan(source, plan)[0])
    assert before == [(each, each) for each in range(30)]
    time.sleep(0.2)
    # Rolls the segment, which is what gets compacted.
    produce(kafka_service, stream.topic, [Outgoing(encoded(30), b"other")])
    wait_for(lambda: len(numbers_of(source, plan)) == 3, 60)
    source.verify(plan)
    assert placed_numbers(read_plan(source, plan)[0]) == before[-3:]
    following = source.plan(plan, ends(plan), NO_LIMIT, CLOCK)
    assert bounds(following.ranges[0]) == (0, 30, 31)

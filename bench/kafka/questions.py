"""What is asked of a broker besides records: plans, acknowledgements, and the way to an offset."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from bench.figures import Benchmark, Figure
from bench.kafka.click_topic import ClickTopic
from bench.kafka.message_formats import SCHEMA
from bench.kafka.venue import Venue, venue_of
from bench.measure import Run, call, one_by_one
from bench.surroundings import Surroundings
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import KafkaPosition, SourceRange
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.options import KafkaOptions, ReaderKind
from laminar_dagster.sources.kafka.source import KafkaSource

_RECORDS: Final = 100_000
_PARTITIONS: Final = (1, 16, 64)
_TIMEOUT: Final = 30.0
# Of an epoch: such a limit has to look at messages, to learn how large they are.
_LIMITS: Final = Admission(max_records=1_000_000, max_bytes=1 << 30)
_NO_LIMITS: Final = Admission()


def plan(surroundings: Surroundings) -> Iterator[Figure]:
    """How long it takes to choose the ranges of an epoch."""
    venue = venue_of(surroundings)
    for count in _PARTITIONS:
        topic = venue.topic(ClickTopic(_RECORDS, count))
        source = _source(venue, topic)
        free, limited, peer = one_by_one(
            surroundings.effort,
            call(partial(_plan, source, _NO_LIMITS)),
            call(partial(_plan, source, _LIMITS)),
            call(partial(_ends, AdminClient({"bootstrap.servers": venue.servers}), topic)),
        )
        what = f"plan an epoch over {count} partition{'s' if count > 1 else ''}"
        yield Figure(
            f"kafka-plan/{count}",
            what,
            free,
            peer="list_offsets, one request",
            peer_sample=peer,
            note="cluster, topic ids, first and last offsets, where the group stands",
        )
        yield Figure(
            f"kafka-plan/{count}/limited",
            f"{what}, limited in bytes",
            limited,
            peer="without a limit",
            peer_sample=free,
            note="reads a few messages to learn their size",
        )


def acknowledge(surroundings: Surroundings) -> Iterator[Figure]:
    """How long it takes to tell the group where it stands."""
    venue = venue_of(surroundings)
    for count in _PARTITIONS:
        topic = venue.topic(ClickTopic(_RECORDS, count))
        source = _source(venue, topic)
        positions = tuple(
            KafkaPosition(topic=topic.name, partition=number, offset=1) for number in range(count)
        )
        consumer = Consumer(_client(venue))
        parts = [TopicPartition(topic.name, number, 1) for number in range(count)]
        consumer.assign(parts)
        own, peer = one_by_one(
            surroundings.effort,
            call(partial(source.acknowledge, positions)),
            call(partial(consumer.commit, offsets=parts, asynchronous=False)),
        )
        consumer.close()
        yield Figure(
            f"kafka-acknowledge/{count}",
            f"write the offsets of {count} partition{'s' if count > 1 else ''}",
            own,
            peer="Consumer.commit, connected",
            peer_sample=peer,
        )


def seek(surroundings: Surroundings) -> Iterator[Figure]:
    """How long it takes from a cold start to the first decoded record at an offset."""
    venue = venue_of(surroundings)
    topic = venue.topic(ClickTopic(_RECORDS, 1))
    middle = topic.total // 2
    kinds: tuple[ReaderKind, ...] = ("portable", "fast")
    runs = [_first_record(venue, topic, middle, kind) for kind in kinds]
    *own, peer = one_by_one(surroundings.effort, *runs, _first_message(venue, topic, middle))
    for kind, sample in zip(kinds, own, strict=True):
        yield Figure(
            f"kafka-seek/{kind}",
            f"first chunk of records at an offset, {kind} reader, new connection",
            sample,
            peer="Consumer.assign and poll, one message",
            peer_sample=peer,
            note="ends with decoded columns",
        )


BENCHMARKS: Final = (
    Benchmark("kafka-plan", "the ranges of an epoch", plan),
    Benchmark("kafka-acknowledge", "the group's offsets", acknowledge),
    Benchmark("kafka-seek", "to the first record at an offset", seek),
)


def _plan(source: KafkaSource, limits: Admission) -> None:
    source.plan(None, (), limits, datetime.now(UTC))


def _ends(admin: AdminClient, topic: ClickTopic) -> None:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    request = {TopicPartition(topic.name, number): latest for number in range(topic.partitions)}
    answers = admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED)
    for each in answers.values():
        each.result(_TIMEOUT)


def _first_record(venue: Venue, topic: ClickTopic, offset: int, kind: ReaderKind) -> Run:
    reader = _source(venue, topic, kind).reader()
    start = KafkaPosition(topic=topic.name, partition=0, offset=offset)
    end = KafkaPosition(topic=topic.name, partition=0, offset=topic.total)
    wanted = SourceRange(start=start, end=end)

    def first(_: int) -> float:
        begun = time.perf_counter()
        chunks = reader.read(wanted)
        chunk = next(chunks)
        seconds = time.perf_counter() - begun
        chunks.close()  # type: ignore[attr-defined]
        if chunk.positions[0].as_py() != offset:
            raise RuntimeError(f"the first record was at {chunk.positions[0]}, not at {offset}")
        return seconds

    return first


def _first_message(venue: Venue, topic: ClickTopic, offset: int) -> Run:
    def first(_: int) -> float:
        begun = time.perf_counter()
        consumer = Consumer(_client(venue))
        consumer.assign([TopicPartition(topic.name, 0, offset)])
        message = consumer.poll(_TIMEOUT)
        seconds = time.perf_counter() - begun
        consumer.close()
        if message is None or message.offset() != offset:
            raise RuntimeError(f"no message came at {offset}")
        return seconds

    return first


def _source(venue: Venue, topic: ClickTopic, reader: ReaderKind = "auto") -> KafkaSource:
    options = KafkaOptions(
        bootstrap_servers=venue.servers,
        topics=(topic.name,),
        group_id=f"bench-{uuid.uuid4().hex}",
        reader=reader,
    )
    return KafkaSource(SourceId("clicks"), SCHEMA, options)


def _client(venue: Venue) -> dict[str, Any]:
    group = f"bench-{uuid.uuid4().hex}"
    return {"bootstrap.servers": venue.servers, "group.id": group, "enable.auto.commit": False}

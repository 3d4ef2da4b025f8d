"""Topics that are unlike most: poisonous records, large ones, odd clocks, many partitions."""

from __future__ import annotations

import hashlib
import random
import time
from typing import Final

import pyarrow as pa
import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from tests.integration.kafka.reading import Kind
from tests.integration.kafka.streams import (
    CLOCK,
    Chunks,
    TopicStream,
    bad_records,
    encoded,
    ends,
    placed_numbers,
    read_plan,
)
from tests.services.kafka import Outgoing, TopicFactory, produce

pytestmark = pytest.mark.service("kafka")

MIB: Final = 1024 * 1024
# What a broker refuses and a producer does not send, unless they are told otherwise.
LARGE: Final = 24 * MIB
RAW: Final = pa.schema([pa.field("value", pa.binary())])


def read_all(stream: TopicStream, **options: object) -> dict[int, Chunks]:
    source = stream.open(**options)
    return read_plan(source, source.plan(None, (), Admission(), CLOCK))


def test_one_record_in_a_hundred_is_poison(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, kind: Kind
) -> None:
    stream = TopicStream(kafka_service, kafka_topic())
    chance = random.Random(5)
    poisons = (b"nonsense", b"[1]", b'{"n": "x"}', b"\xff\xfe\x00", b"{", b'{"n": 1}{"n": 2}')
    count = 30_000
    sent = {
        place: chance.choice(poisons) if chance.random() < 0.01 else encoded(place)
        for place in range(count)
    }
    produce(kafka_service, stream.topic, list(sent.values()))
    chunks = read_all(stream, reader=kind)[0]
    bad = [(place, value) for place, value in sent.items() if value in poisons]
    assert 200 < len(bad) < 400
    assert bad_records(chunks) == bad
    assert all(all(chunk.bad.column("reason").to_pylist()) for chunk in chunks)
    assert set(chunks[0].bad.column("partition").to_pylist()) == {f"{stream.topic}/0"}
    taken = {place for place, _ in bad}
    assert placed_numbers(chunks) == [(n, n) for n in range(count) if n not in taken]


def test_messages_of_ten_mebibytes_and_one_that_is_too_long(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, kind: Kind
) -> None:
    topic = kafka_topic(config={"max.message.bytes": str(LARGE)})
    stream = TopicStream(kafka_service, topic, options={"format": "raw"}, schema=RAW)
    chance = random.Random(3)
    sent = [b"small", chance.randbytes(10 * MIB), b"", chance.randbytes(17 * MIB), b"last"]
    sent.insert(2, chance.randbytes(16 * MIB))
    produce(kafka_service, topic, sent, settings={"message.max.bytes": LARGE})
    chunks = read_all(stream, reader=kind)[0]
    values = [value for chunk in chunks for value in chunk.rows.column("value").to_pylist()]
    places = [place for chunk in chunks for place in chunk.positions.to_pylist()]
    assert places == [0, 1, 2, 3, 5]
    assert _digests(values) == _digests([sent[place] for place in places])
    ((place, head),) = bad_records(chunks)
    assert (place, head) == (4, sent[4][: 64 * 1024])
    (bad,) = (chunk.bad for chunk in chunks if chunk.bad.num_rows)
    assert bad.column("is_whole").to_pylist() == [False]
    assert "more than `max.record.bytes` = 16777216" in bad.column("reason")[0].as_py()


def test_clocks_that_are_wrong(kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> None:
    """Times say nothing about which records there are, nor about their order."""
    time_type = pa.timestamp("us", tz="UTC")
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("_timestamp", time_type)])
    stream = TopicStream(kafka_service, kafka_topic(), schema=schema)
    now = int(time.time() * 1000)
    # A broker refuses what is more than an hour ahead.
    times = [now, 1, now + 3_540_000, 2, 1_000_000_000_000, now - 1, now + 3_540_000, now]
    sent = [Outgoing(encoded(n), timestamp=moment) for n, moment in enumerate(times)]
    produce(kafka_service, stream.topic, sent)
    source = stream.open(include_metadata=True)
    found: list[tuple[int, int]] = []
    moments: list[int] = []
    plan: SourcePlan | None = None
    for _ in range(3):
        plan = source.plan(plan, ends(plan) if plan else (), Admission(max_records=3), CLOCK)
        chunks = read_plan(source, plan)[0]
        found += placed_numbers(chunks)
        for chunk in chunks:
            moments += chunk.rows.column("_timestamp").cast(pa.int64()).to_pylist()
    assert found == [(n, n) for n in range(len(times))]
    assert moments == [moment * 1000 for moment in times]


def test_many_partitions_and_most_of_them_empty(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    stream = TopicStream(kafka_service, kafka_topic(64))
    filled = range(0, 64, 5)
    sent = [Outgoing(encoded(n), partition=part) for n in range(6) for part in filled]
    produce(kafka_service, stream.topic, sent)
    source = stream.open()
    found: dict[int, list[tuple[int, int]]] = {}
    plan: SourcePlan | None = None
    for turn in range(4):
        plan = source.plan(plan, ends(plan) if plan else (), Admission(max_records=30), CLOCK)
        assert len(plan.ranges) == 64
        read = read_plan(source, plan)
        # All that have something get their part: none waits until another is done.
        assert turn > 1 or read.keys() == set(filled)
        for partition, chunks in read.items():
            found.setdefault(partition, []).extend(placed_numbers(chunks))
    assert plan is not None
    rest = source.plan(plan, ends(plan), Admission(), CLOCK)
    assert all(part.is_empty for part in rest.ranges)
    assert found == {partition: [(n, n) for n in range(6)] for partition in filled}


def _digests(values: list[bytes]) -> list[str]:
    return [hashlib.sha256(value).hexdigest() for value in values]

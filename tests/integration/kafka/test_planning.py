"""What an epoch reads of topics of a real broker, and what is refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from infra.kafka import KafkaEndpoint
from infra.load import Deadline
from laminar_dagster.core.errors import (
    AcknowledgeFailed,
    InvalidConfig,
    RetentionExpired,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.offsets import KafkaIdentity, KafkaPosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.streams import TopicStream, encoded, fresh_name
from tests.services.kafka import (
    Outgoing,
    TopicFactory,
    client_settings,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    produce_in_transaction,
)

pytestmark = pytest.mark.service("kafka")

CLOCK = datetime(2030, 1, 1, tzinfo=UTC)
NO_LIMIT = Admission()


def spans(plan: SourcePlan) -> dict[int, tuple[int, int]]:
    found = {}
    for part in plan.ranges:
        assert isinstance(part.start, KafkaPosition)
        assert isinstance(part.end, KafkaPosition)
        found[part.start.partition] = (part.start.offset, part.end.offset)
    return found


def ends(plan: SourcePlan) -> tuple[KafkaPosition, ...]:
    return tuple(part.end for part in plan.ranges if isinstance(part.end, KafkaPosition))


def following(source: KafkaSource, plan: SourcePlan, clock: datetime = CLOCK) -> SourcePlan:
    return source.plan(plan, ends(plan), NO_LIMIT, clock)


@pytest.fixture
def stream(kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
    return TopicStream(kafka_service, kafka_topic(3), partitions=3)


# --- where an epoch ends ----------------------------------------------------------------------


def test_every_partition_is_in_the_plan_also_an_empty_one(stream: TopicStream) -> None:
    stream.append(range(5), partition=0)
    stream.append(range(2), partition=2)
    assert spans(stream.open().plan(None, (), NO_LIMIT, CLOCK)) == {0: (0, 5), 1: (0, 0), 2: (0, 2)}


def test_limits_are_shared_fairly_over_partitions(stream: TopicStream) -> None:
    stream.append(range(100), partition=0)
    stream.append(range(4), partition=1)
    stream.append(range(100), partition=2)
    plan = stream.open().plan(None, (), Admission(max_records=60), CLOCK)
    assert spans(plan) == {0: (0, 28), 1: (0, 4), 2: (0, 28)}


def test_a_limit_of_bytes_is_kept_about(stream: TopicStream) -> None:
    stream.append(range(100_000, 104_000), partition=0)
    produce(stream.endpoint, stream.topic, [b"x" * 1000] * 4000, partition=1)
    plan = stream.open().plan(None, (), Admission(max_bytes=200_000), CLOCK)
    taken = {partition: end for partition, (_, end) in spans(plan).items()}
    assert taken[0] == 4000
    assert 80 <= taken[1] <= 200


def test_what_is_in_an_open_transaction_waits(stream: TopicStream) -> None:
    stream.append(range(3), partition=0)
    producer = produce_in_transaction(
        stream.endpoint, stream.topic, [encoded(3)], end="leave open", partition=0
    )
    stream.append(range(4, 6), partition=0)
    source = stream.open()
    first = source.plan(None, (), NO_LIMIT, CLOCK)
    assert spans(first)[0] == (0, 3)
    producer.abort_transaction(30)
    # Three records, one of them aborted, and the mark of the abort, which comes a moment later.
    _eventually(lambda: spans(following(source, first))[0] == (3, 7))


# --- where the first epoch begins -------------------------------------------------------------


def test_latest_begins_at_the_end_and_misses_nothing_after(stream: TopicStream) -> None:
    stream.append(range(5), partition=0)
    source = stream.open(auto_offset_reset="latest")
    first = source.plan(None, (), NO_LIMIT, CLOCK)
    assert spans(first)[0] == (5, 5)
    stream.append(range(2), partition=0)
    stream.append(range(3), partition=1)
    assert spans(following(source, first)) == {0: (5, 7), 1: (0, 3), 2: (0, 0)}


def test_none_needs_the_offsets_of_the_group(stream: TopicStream) -> None:
    stream.append(range(5), partition=0)
    source = stream.open(auto_offset_reset="none")
    with pytest.raises(InvalidConfig, match="holds no offset of"):
        source.plan(None, (), NO_LIMIT, CLOCK)
    stood = tuple(
        KafkaPosition(topic=stream.topic, partition=number, offset=2 if number == 0 else 0)
        for number in range(3)
    )
    source.acknowledge(stood)
    assert spans(source.plan(None, (), NO_LIMIT, CLOCK))[0] == (2, 5)


def test_a_new_pipeline_goes_on_where_its_group_stands(stream: TopicStream) -> None:
    stream.append(range(5), partition=0)
    stream.append(range(5), partition=1)
    source = stream.open(group_offsets="resume")
    source.acknowledge((KafkaPosition(topic=stream.topic, partition=0, offset=3),))
    assert spans(source.plan(None, (), NO_LIMIT, CLOCK)) == {0: (3, 5), 1: (0, 5), 2: (0, 0)}
    assert spans(stream.open().plan(None, (), NO_LIMIT, CLOCK))[0] == (0, 5)


# --- topics that change -----------------------------------------------------------------------


def test_new_partitions_join_at_their_start(stream: TopicStream) -> None:
    stream.append(range(5), partition=0)
    source = stream.open(auto_offset_reset="latest")
    first = source.plan(None, (), NO_LIMIT, CLOCK)
    admin = AdminClient(client_settings(stream.endpoint))
    request = [NewPartitions(stream.topic, 5)]  # type: ignore[no-untyped-call, unused-ignore]
    admin.create_partitions(request)[stream.topic].result(30)
    _eventually(lambda: len(spans(following(source, first))) == 5)
    stream.append(range(7), partition=4)
    assert spans(following(source, first))[4] == (0, 7)


def test_a_topic_created_anew_is_refused(stream: TopicStream) -> None:
    stream.append(range(5))
    source = stream.open()
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    assert isinstance(plan.identity, KafkaIdentity)
    stream.replace()
    with pytest.raises(SourceReplaced, match="created anew") as caught:
        following(source, plan)
    assert plan.identity.topic_ids[stream.topic] in caught.value.expected
    with pytest.raises(SourceReplaced, match="created anew"):
        source.verify(plan)
    with pytest.raises(SourceReplaced, match="created anew"):
        source.require_not_replaced(plan)


def test_a_topic_that_is_gone_is_refused_and_one_that_never_was_is_a_mistake(
    stream: TopicStream,
) -> None:
    source = stream.open()
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    delete_topic(stream.endpoint, stream.topic)
    with pytest.raises(SourceReplaced, match="no such topic"):
        following(source, plan)
    with pytest.raises(InvalidConfig, match=f"has no topic {stream.topic}"):
        stream.open().plan(None, (), NO_LIMIT, CLOCK)


def test_another_cluster_is_refused(stream: TopicStream) -> None:
    source = stream.open()
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    assert isinstance(plan.identity, KafkaIdentity)
    other = SourcePlan(
        source_id=plan.source_id,
        identity=KafkaIdentity(cluster_id="elsewhere", topic_ids=plan.identity.topic_ids),
        ranges=plan.ranges,
    )
    with pytest.raises(SourceReplaced, match="cluster elsewhere"):
        following(source, other)


def test_topics_that_match_a_pattern_join_when_they_appear(kafka_service: KafkaEndpoint) -> None:
    name = fresh_name()
    create_topic(kafka_service, f"{name}-a")
    try:
        stream = TopicStream(
            kafka_service, name, options={"topics": (), "topic_pattern": f"{name}-[ab]"}
        )
        source = stream.open()
        first = source.plan(None, (), NO_LIMIT, CLOCK)
        assert [end.topic for end in ends(first)] == [f"{name}-a"]
        create_topic(kafka_service, f"{name}-b")
        create_topic(kafka_service, f"{name}-c")
        produce(kafka_service, f"{name}-b", [encoded(1)])
        second = following(source, first)
        assert [end.topic for end in ends(second)] == [f"{name}-a", f"{name}-b"]
        with pytest.raises(InvalidConfig, match="matches"):
            stream.open(topic_pattern="nothing-at-all").plan(None, (), NO_LIMIT, CLOCK)
    finally:
        for suffix in "abc":
            delete_topic(kafka_service, f"{name}-{suffix}")


# --- retention --------------------------------------------------------------------------------


def test_records_that_were_deleted_unread_are_refused_or_recorded(stream: TopicStream) -> None:
    stream.append(range(10))
    source = stream.open()
    first = source.plan(None, (), Admission(max_records=4), CLOCK)
    delete_records(stream.endpoint, stream.topic, {0: 7})
    with pytest.raises(RetentionExpired, match=r"offset 4 of .*/0; the earliest .* offset 7"):
        following(source, first)
    with pytest.raises(RetentionExpired):
        source.verify(first)
    with pytest.raises(RetentionExpired):
        source.check_seek(ends(first)[0])
    lenient = stream.open(on_gap="earliest")
    second = following(lenient, first)
    assert spans(second)[0] == (7, 10)
    (gap,) = second.gaps
    assert (gap.lost.start, gap.lost.end) == (
        KafkaPosition(topic=stream.topic, partition=0, offset=4),
        KafkaPosition(topic=stream.topic, partition=0, offset=7),
    )


def test_real_retention_expires(kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> None:
    tiny = {"retention.ms": "1000", "segment.bytes": "1048576", "segment.ms": "500"}
    stream = TopicStream(kafka_service, kafka_topic(config=tiny))
    stream.append(range(10))
    source = stream.open()
    first = source.plan(None, (), Admission(max_records=4), CLOCK)
    # Another segment, so that the first may go.
    time.sleep(1.0)
    stream.append(range(10, 12))

    def expired() -> bool:
        try:
            following(source, first)
        except RetentionExpired:
            return True
        stream.append([0])
        return False

    _eventually(expired, seconds=60)


def test_a_warning_comes_before_the_loss(
    stream: TopicStream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.append(range(1000))
    source = stream.open()
    first = source.plan(None, (), Admission(max_records=500), CLOCK)
    with caplog.at_level(logging.WARNING):
        following(source, first)
        assert not caplog.records
        delete_records(stream.endpoint, stream.topic, {0: 490})
        following(source, first)
    assert "about to lose records unread: 500 wait, 10 are behind us" in caplog.text


def test_a_shorter_partition_is_refused(stream: TopicStream) -> None:
    stream.append(range(3))
    source = stream.open()
    beyond = KafkaPosition(topic=stream.topic, partition=0, offset=9)
    with pytest.raises(SourceReplaced, match="cut off"):
        source.plan(None, (beyond,), NO_LIMIT, CLOCK)
    with pytest.raises(SourceReplaced, match="cut off"):
        source.check_seek(beyond)
    lost = KafkaPosition(topic=stream.topic, partition=9, offset=0)
    with pytest.raises(SourceReplaced, match="fewer partitions"):
        source.plan(None, (lost,), NO_LIMIT, CLOCK)


# --- idle partitions --------------------------------------------------------------------------


def test_a_partition_is_idle_when_nothing_came_for_long_by_the_plans_clocks(
    stream: TopicStream,
) -> None:
    """Whatever the producers' clocks say."""
    stream.append([1], partition=0)
    source = stream.open(idle_timeout=timedelta(seconds=30))
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    assert plan.idle == ()
    assert {each.position.partition for each in plan.quiet} == {1, 2}  # type: ignore[union-attr]
    for seconds, idle in ((10, set()), (29, set()), (30, {1, 2})):
        stream.append([seconds], partition=0)
        plan = following(source, plan, CLOCK + timedelta(seconds=seconds))
        assert {each.partition for each in plan.idle if isinstance(each, KafkaPosition)} == idle
    # It comes back, with a clock of its own.
    years_ago = Outgoing(encoded(1), timestamp=1_000_000_000_000)
    produce(stream.endpoint, stream.topic, [years_ago], partition=1)
    plan = following(source, plan, CLOCK + timedelta(seconds=31))
    assert [each.partition for each in plan.idle if isinstance(each, KafkaPosition)] == [2]
    plan = following(source, plan, CLOCK + timedelta(seconds=40))
    assert [each.partition for each in plan.idle if isinstance(each, KafkaPosition)] == [2]
    plan = following(source, plan, CLOCK + timedelta(seconds=70))
    assert len(plan.idle) == 3


# --- the group --------------------------------------------------------------------------------


def test_lag_tools_see_how_far_the_sinks_are(stream: TopicStream) -> None:
    stream.append(range(5), partition=1)
    source = stream.open()
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    source.acknowledge(ends(plan))
    source.acknowledge(ends(plan))
    stream.append(range(2), partition=1)
    health = source.health(ends(plan))
    assert (health.details["brokers"], health.total_lag) == ("1", 2)
    assert health.message == "connected to 1 broker(s), lag 2"
    settings = client_settings(stream.endpoint) | {"group.id": health.details["group_id"]}
    consumer = Consumer(settings)
    try:
        (stood,) = consumer.committed([TopicPartition(stream.topic, 1)], 30)
        assert stood.offset == 5
    finally:
        consumer.close()


def test_a_group_that_others_use_refuses_and_nothing_depends_on_it(stream: TopicStream) -> None:
    stream.append(range(5))
    source = stream.open()
    plan = source.plan(None, (), NO_LIMIT, CLOCK)
    group = source.health(()).details["group_id"]
    consumer = Consumer(client_settings(stream.endpoint) | {"group.id": group})
    try:
        consumer.subscribe([stream.topic])
        _eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        with pytest.raises(AcknowledgeFailed):
            source.acknowledge(ends(plan))
    finally:
        consumer.close()
    assert spans(following(source, plan))[0] == (5, 5)


# --- servers that do not answer ---------------------------------------------------------------


def test_a_broker_that_is_away_is_a_passing_matter(stream: TopicStream) -> None:
    nobody = stream.open(bootstrap_servers="127.0.0.1:9", connect_timeout=timedelta(seconds=2))
    begun = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:9 within 2 s") as caught:
        nobody.plan(None, (), NO_LIMIT, CLOCK)
    assert caught.value.exit_code == 75
    assert time.monotonic() - begun < 30


def _eventually(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = Deadline(seconds)
    while not holds():
        assert not deadline.is_over, "it did not come about"
        time.sleep(0.1)

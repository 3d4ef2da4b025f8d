"""Every way to fetch, held to the same behaviour on a real broker."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Literal

import pyarrow as pa
import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.core.errors import InvalidConfig, RetentionExpired, SourceUnavailable
from laminar_dagster.sources.kafka.fetching import choose_fetcher
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted
from laminar_dagster.sources.kafka.portable_fetcher import PortableFetcher
from laminar_dagster.sources.kafka.ranges import ChunkLimits
from laminar_dagster.sources.native.library import why_not
from tests.integration.kafka.reading import (
    PATIENCE,
    SIPS,
    Kind,
    MakeFetcher,
    number,
    offsets_of,
    read,
    values_of,
    wait_for,
)
from tests.services.compiled import without_compiled
from tests.services.kafka import (
    Outgoing,
    TopicFactory,
    delete_records,
    end_offsets,
    produce,
    produce_in_transaction,
)

pytestmark = pytest.mark.service("kafka")


def test_a_message_arrives_as_it_was_sent(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    values = [b"", None, b"x", b"t" * 12, b"t" * 13, bytes(range(256)), b"l" * 70_000]
    keys = [None, b"", b"k", b"a key of more than twelve bytes"]
    sent = [Outgoing(value, key) for value, key in itertools.product(values, keys)]
    topic = kafka_topic()
    produce(kafka_service, topic, sent)
    chunks = read(make_fetcher(wanted=Wanted(keys=True)), topic, 0, len(sent))
    assert offsets_of(chunks) == list(range(len(sent)))
    assert values_of(chunks) == [each.value for each in sent]
    assert [key for chunk in chunks for key in chunk.keys.to_pylist()] == [  # type: ignore[union-attr]
        each.key for each in sent
    ]
    for chunk in chunks:
        chunk.values.validate(full=True)
        assert chunk.timestamps is None
        assert chunk.headers is None


def test_what_is_not_wanted_is_not_read(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [Outgoing(b"value", b"key")])
    assert read(make_fetcher(), topic, 0, 1)[0].keys is None


def test_timestamps_and_headers(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, kind: Kind
) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("nothing", None), ("empty", b""), ("ü", b"\0"))
    topic = kafka_topic()
    produce(
        kafka_service,
        topic,
        [Outgoing(b"one", headers=headers, timestamp=1_700_000_000_123), Outgoing(b"two")],
    )
    settings = {"bootstrap.servers": kafka_service.bootstrap}
    wanted = Wanted(timestamps=True, headers=True)
    if kind == "fast" and why_not():
        # These take the compiled library; without it, `auto` is the portable one.
        with pytest.raises(InvalidConfig, match="timestamps and headers"):
            choose_fetcher("fast", settings, wanted, "clicks")
        assert isinstance(choose_fetcher("auto", settings, wanted, "clicks"), PortableFetcher)
        return
    (chunk,) = read(choose_fetcher(kind, settings, wanted, "clicks"), topic, 0, 2)
    assert chunk.timestamps is not None
    assert chunk.timestamps[0] == 1_700_000_000_123
    assert abs(int(chunk.timestamps[1]) / 1000 - time.time()) < 300
    assert chunk.headers is not None
    chunk.headers.validate(full=True)
    assert chunk.headers.to_pylist() == [[{"key": k, "value": v} for k, v in headers], []]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(
    kafka_service: KafkaEndpoint,
    kafka_topic: TopicFactory,
    make_fetcher: MakeFetcher,
    codec: str,
) -> None:
    sent = [number(place) for place in range(3_000)]
    topic = kafka_topic()
    produce(kafka_service, topic, sent, settings={"compression.type": codec, "linger.ms": 50})
    # A range that begins within a compressed batch gets that batch whole.
    assert values_of(read(make_fetcher(), topic, 1_234, 2_999)) == sent[1_234:2_999]


def test_values_larger_than_a_chunk_come_alone(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    large = 10 * 1024 * 1024
    topic = kafka_topic(config={"max.message.bytes": str(large + 1_000)})
    sent = [b"small", b"a" * large, None, b"b" * large, b"small"]
    produce(kafka_service, topic, sent, settings={"message.max.bytes": large + 1_000})
    chunks = read(make_fetcher(), topic, 0, 5)
    assert [len(chunk) for chunk in chunks] == [1, 1, 1, 1, 1]
    assert values_of(chunks) == sent


def test_any_cut_through_transactions(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    """Committed, aborted and interleaved ones, and markers wherever they happen to be."""
    topic = kafka_topic()
    marked = 0

    def put(value: bytes, end: Literal["commit", "abort"] | None = None, count: int = 1) -> None:
        nonlocal marked
        if end is None:
            produce(kafka_service, topic, [value] * count)
        else:
            produce_in_transaction(kafka_service, topic, [value] * count, end=end)
        marked += count + (end is not None)
        # The broker writes a marker after it has answered.
        wait_for(lambda: end_offsets(kafka_service, topic)[0] == marked)

    put(b"plain", count=2)
    put(b"aborted", "abort", 3)
    put(b"committed", "commit", 2)
    one, two = (
        produce_in_transaction(kafka_service, topic, [word], end="leave open")
        for word in (b"one", b"aborted")
    )
    for producer, word in [(one, b"one"), (two, b"aborted")] * 2:
        producer.produce(topic, word)
        producer.flush(PATIENCE)
    two.abort_transaction(PATIENCE)
    one.commit_transaction(PATIENCE)
    marked += 8
    wait_for(lambda: end_offsets(kafka_service, topic)[0] == marked)
    put(b"aborted", "abort", 2)
    put(b"aborted", "abort", 2)

    (whole,) = read(make_fetcher(), topic, 0, marked)
    assert values_of([whole]) == [b"plain"] * 2 + [b"committed"] * 2 + [b"one"] * 3
    # From 0 to the markers of the aborted tail.
    assert offsets_of([whole])[-1] < marked - 6
    everything = offsets_of([whole])
    for start in range(0, marked, 2):
        for end in range(start, marked + 1, 3):
            found = offsets_of(read(make_fetcher(), topic, start, end))
            assert found == [each for each in everything if start <= each < end], (start, end)


def test_a_partition_with_aborted_messages_alone(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce_in_transaction(kafka_service, topic, [b"never"] * 5, end="abort")
    wait_for(lambda: end_offsets(kafka_service, topic)[0] == 6)
    for end in (3, 5, 6):
        assert read(make_fetcher(), topic, 0, end) == []


def test_an_open_transaction_holds_back_what_follows_it(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [b"before"] * 3)
    producer = produce_in_transaction(kafka_service, topic, [b"open"] * 2, end="leave open")
    produce(kafka_service, topic, [b"after"])
    assert values_of(read(make_fetcher(), topic, 0, 3)) == [b"before"] * 3
    with pytest.raises(SourceUnavailable, match=r"at offset 3, before 6"):
        read(make_fetcher(), topic, 0, 6, stall_timeout=1.5)
    # A reader that waits goes on when it ends.
    timer = threading.Timer(1.0, producer.commit_transaction)
    timer.start()
    assert values_of(read(make_fetcher(), topic, 2, 6)) == [b"before", b"open", b"open", b"after"]
    timer.join()


def test_holes_that_compaction_left(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.001",
            "max.compaction.lag.ms": "100",
        }
    )
    last = 0
    for _ in range(3):
        last += 6
        produce(kafka_service, topic, [Outgoing(b"v", b"%d" % (key % 3)) for key in range(6)])
        time.sleep(0.2)
    # Rolls the segment, which is what gets compacted.
    produce(kafka_service, topic, [Outgoing(b"v", b"other")])
    last += 1
    found: list[int] = []
    cuts: dict[tuple[int, int], list[int]] = {}

    def offsets(start: int = 0, end: int = last) -> list[int]:
        return offsets_of(read(make_fetcher(), topic, start, end))

    def compacted() -> bool:
        """Whether there are holes, and the broker made none while all cuts were read."""
        found[:] = offsets()
        if len(found) >= 10:
            return False
        for cut in itertools.combinations(range(0, last + 1, 2), 2):
            cuts[cut] = offsets(*cut)
        return offsets() == found

    wait_for(compacted, 120)
    assert found[-1] == last - 1
    for (start, end), now in cuts.items():
        assert now == [each for each in found if start <= each < end], (start, end)


def test_expired_records_are_never_skipped(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [b"value"] * 10)
    delete_records(kafka_service, topic, {0: 5})
    with pytest.raises(RetentionExpired) as caught:
        read(make_fetcher(), topic, 2, 10)
    assert caught.value.wanted == f"offset 2 of {topic}[0]"
    assert caught.value.earliest == "offset 5, and its log ends before 10"
    assert offsets_of(read(make_fetcher(), topic, 5, 10)) == [5, 6, 7, 8, 9]


def test_a_log_that_is_shorter_than_the_range(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [b"value"] * 3)
    with pytest.raises(RetentionExpired, match="its log ends before 3"):
        read(make_fetcher(), topic, 100, 200)


def test_a_topic_that_is_not_there(make_fetcher: MakeFetcher) -> None:
    with pytest.raises(SourceUnavailable, match=r"no-such-topic\[0\]"):
        read(make_fetcher(), "no-such-topic", 0, 5, stall_timeout=2.0)


def test_chunks_depend_on_the_data_alone(
    kafka_service: KafkaEndpoint, varied_topic: tuple[str, int]
) -> None:
    topic, count = varied_topic
    limits = ChunkLimits(records=3_000, size_bytes=200_000)
    settings = [{}, SIPS, {"fetch.message.max.bytes": "300000", "fetch.wait.max.ms": "5"}]
    results = []

    def fetch(kind: Kind) -> None:
        for each in settings:
            base = {"bootstrap.servers": kafka_service.bootstrap}
            fetcher = choose_fetcher(kind, base | each, Wanted(keys=True), "clicks")
            results.append([_as_rows(chunk) for chunk in read(fetcher, topic, 3, count, limits)])

    fetch("portable")
    fetch("fast")
    with without_compiled():
        fetch("fast")
    assert len(results[0]) > 50
    assert all(each == results[0] for each in results)


def _as_rows(chunk: MessageBatch) -> pa.RecordBatch:
    return pa.record_batch({"offset": chunk.offsets, "value": chunk.values, "key": chunk.keys})


def test_pause_and_resume_lose_and_repeat_nothing(
    varied_topic: tuple[str, int], make_fetcher: MakeFetcher
) -> None:
    topic, count = varied_topic
    fetcher = make_fetcher()
    fetcher.open(topic, 0, 0)
    try:
        found: list[int] = []
        while len(found) < count:
            found += fetcher.fetch(1_500, 5.0).offsets.tolist()
            fetcher.pause()
            assert len(fetcher.fetch(10, 0.05)) == 0
            assert fetcher.position() == found[-1] + 1
            fetcher.resume()
    finally:
        fetcher.close()
    assert found == list(range(count))


def test_pause_at_the_end_of_the_partition(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic = kafka_topic()
    produce(kafka_service, topic, [b"one"])
    fetcher = make_fetcher()
    fetcher.open(topic, 0, 0)
    try:
        found = [fetcher.fetch(10, 5.0), fetcher.fetch(10, 0.5)]
        fetcher.pause()
        produce(kafka_service, topic, [b"two"])
        fetcher.resume()
        while fetcher.position() < 2:
            found.append(fetcher.fetch(10, 5.0))
    finally:
        fetcher.close()
    assert values_of(found) == [b"one", b"two"]


def test_settings_that_are_wrong_are_told_without_secrets(
    make_fetcher: MakeFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    fetcher = make_fetcher({"no.such.setting": "1"})
    with pytest.raises(InvalidConfig, match=r"no\.such\.setting"):
        read(fetcher, "topic", 0, 1)
    fetcher = make_fetcher({"security.protocol": "ssl", "ssl.key.pem": "hunter2"})
    with pytest.raises(InvalidConfig) as caught:
        read(fetcher, "topic", 0, 1)
    assert "hunter2" not in str(caught.value) + caplog.text

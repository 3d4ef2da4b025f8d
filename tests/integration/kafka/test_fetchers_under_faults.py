"""Both ways to fetch, when the network, the broker or the one who reads makes trouble."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from infra.kafka import Kafka, KafkaEndpoint
from infra.ports import free_port
from laminar_dagster.core.errors import (
    AuthFailed,
    SourceUnavailable,
)
from laminar_dagster.sources.kafka.backpressure import BackpressureController
from laminar_dagster.sources.kafka.fetching import choose_fetcher
from laminar_dagster.sources.kafka.messages import PartitionRange, Wanted
from laminar_dagster.sources.kafka.prefetch import Prefetcher
from laminar_dagster.sources.kafka.ranges import ChunkLimits, fetch_range
from tests.integration.kafka import interrupted_reader
from tests.integration.kafka.reading import (
    PATIENCE,
    SIPS,
    Kind,
    MakeFetcher,
    number,
    read,
    thread_count,
    values_of,
    wait_for,
)
from tests.services.kafka import (
    IMPATIENT,
    KafkaWire,
    Mechanism,
    SecureKafka,
    TopicFactory,
    client_settings,
    create_topic,
    end_offsets,
    produce,
)

pytestmark = pytest.mark.service("kafka")


def test_the_network_is_cut_while_reading(
    kafka_wire: KafkaWire, varied_topic: tuple[str, int], make_fetcher: MakeFetcher
) -> None:
    topic, count = varied_topic
    fetcher = make_fetcher({"bootstrap.servers": kafka_wire.bootstrap, **SIPS})
    found: list[int] = []
    chunks = fetch_range(fetcher, PartitionRange(topic, 0, 0, count), "c", ChunkLimits(1_000))
    for turn, chunk in enumerate(chunks):
        found += chunk.offsets.tolist()
        if turn in (2, 5):
            assert kafka_wire.wire.cut() > 0
        elif turn == 8:
            kafka_wire.wire.refuse()
            timer = threading.Timer(1.0, kafka_wire.wire.restore)
            timer.start()
    timer.join()
    assert found == list(range(count))


def test_the_broker_is_killed_while_reading(tmp_path: Path, kind: Kind) -> None:
    with Kafka(IMPATIENT) as kafka:
        endpoint = kafka.start(tmp_path)
        create_topic(endpoint, "topic")
        count = 8_000
        produce(endpoint, "topic", [number(each, 200) for each in range(count)])
        settings = {"bootstrap.servers": endpoint.bootstrap, **SIPS}
        fetcher = choose_fetcher(kind, settings, Wanted(), "clicks")
        wanted = PartitionRange("topic", 0, 0, count)
        found: list[bytes | None] = []
        for turn, chunk in enumerate(fetch_range(fetcher, wanted, "c", ChunkLimits(1_000))):
            found += chunk.values.to_pylist()
            if turn == 1:
                kafka.kill()
                restart = threading.Thread(target=kafka.start, args=(tmp_path,))
                restart.start()
        restart.join()
        assert fetcher.passed_troubles() > 0
        assert found == [number(each, 200) for each in range(count)]


def test_a_broker_that_is_away(kind: Kind) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    fetcher = choose_fetcher(kind, settings, Wanted(), "clicks")
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match=r"topic\[0\].*offset 7.*refused") as caught:
        read(fetcher, "topic", 7, 9, stall_timeout=1.5)
    assert 1.4 < time.monotonic() - began < 4
    assert caught.value.source_id == "clicks"


def test_every_way_of_logging_in(
    secure_kafka: SecureKafka, kind: Kind, request: pytest.FixtureRequest
) -> None:
    topic = f"doors-{request.node.callspec.id}"
    create_topic(secure_kafka.endpoint, topic)
    produce(secure_kafka.endpoint, topic, [b"value"])
    for door in ("SASL", "SSL", "MUTUAL", "SASL_SSL"):
        fetcher = choose_fetcher(kind, secure_kafka.settings(door), Wanted(), "clicks")
        assert values_of(read(fetcher, topic, 0, 1)) == [b"value"], door


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told_at_once(
    secure_kafka: SecureKafka, kind: Kind, mechanism: Mechanism
) -> None:
    settings = secure_kafka.settings("SASL", mechanism) | {"sasl.password": "not-the-password"}
    fetcher = choose_fetcher(kind, settings, Wanted(), "clicks")
    began = time.monotonic()
    with pytest.raises(AuthFailed, match="the Kafka cluster of source clicks") as caught:
        read(fetcher, "topic", 0, 1)
    assert time.monotonic() - began < 10
    assert "not-the-password" not in str(caught.value)


def test_a_certificate_of_a_stranger(secure_kafka: SecureKafka, kind: Kind) -> None:
    stranger = str(secure_kafka.certificates.stranger)
    settings = secure_kafka.settings("SSL") | {"ssl.ca.location": stranger}
    fetcher = choose_fetcher(kind, settings, Wanted(), "clicks")
    with pytest.raises(AuthFailed, match="certificate verify failed"):
        read(fetcher, "topic", 0, 1, stall_timeout=2.0)


def test_a_slow_reader_pauses_the_partition(
    varied_topic: tuple[str, int], make_fetcher: MakeFetcher
) -> None:
    topic, count = varied_topic
    limits = ChunkLimits(records=500, size_bytes=100_000)
    found: list[int] = []
    pauses = 0
    with Prefetcher(
        make_fetcher(),
        PartitionRange(topic, 0, 0, count),
        "clicks",
        limits,
        pressure=BackpressureController(400_000),
    ) as chunks:
        for chunk in chunks:
            found += chunk.offsets.tolist()
            pauses += chunk.pauses
            if len(found) < count // 4:
                time.sleep(0.05)
        assert chunks.pauses >= pauses > 1
    assert found == list(range(count))


def test_memory_is_bounded_under_a_slow_reader(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, make_fetcher: MakeFetcher
) -> None:
    topic, count, size = kafka_topic(), 1_500, 100_000
    produce(kafka_service, topic, [os.urandom(size)] * count)
    settings = {"queued.max.messages.kbytes": "4096", "fetch.message.max.bytes": "1000000"}
    wanted = PartitionRange(topic, 0, 0, count)
    limits = ChunkLimits(size_bytes=1_000_000)
    before, most, records = _resident(), 0, 0
    with Prefetcher(
        make_fetcher(settings), wanted, "clicks", limits, pressure=BackpressureController(8_000_000)
    ) as chunks:
        for chunk in chunks:
            records += len(chunk)
            time.sleep(0.01)
            most = max(most, _resident() - before)
    assert records == count
    # Of 150 MB: the buffer, what librdkafka holds, and what allocators keep.
    assert most < 60_000_000


def test_closing_early_is_quick_and_leaves_nothing(
    varied_topic: tuple[str, int], make_fetcher: MakeFetcher
) -> None:
    topic, count = varied_topic
    list(Prefetcher(make_fetcher(), PartitionRange(topic, 0, 0, 10), "clicks"))
    wait_for(lambda: not _fetching())
    before = thread_count()
    for _ in range(5):
        chunks = Prefetcher(make_fetcher(), PartitionRange(topic, 0, 0, count), "clicks")
        next(chunks)
        began = time.monotonic()
        chunks.close()
        assert time.monotonic() - began < 1
        assert next(chunks, None) is None
    assert not _fetching()
    wait_for(lambda: thread_count() <= before, 5)


def test_closing_is_quick_when_the_broker_is_away(kind: Kind) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    fetcher = choose_fetcher(kind, settings, Wanted(), "clicks")
    chunks = Prefetcher(fetcher, PartitionRange("topic", 0, 0, 5), "clicks")
    time.sleep(0.5)
    began = time.monotonic()
    chunks.close()
    assert time.monotonic() - began < 1
    assert not _fetching()


def test_a_generator_that_is_dropped_closes_its_consumer(
    varied_topic: tuple[str, int], make_fetcher: MakeFetcher
) -> None:
    topic, count = varied_topic
    before = thread_count()
    chunks = fetch_range(make_fetcher(), PartitionRange(topic, 0, 0, count), "c", ChunkLimits(10))
    next(chunks)
    assert thread_count() > before
    del chunks
    wait_for(lambda: thread_count() <= before, 5)


def test_an_interrupt_leaves_no_client_behind(
    varied_topic: tuple[str, int], kind: Kind, kafka_service: KafkaEndpoint
) -> None:
    """A client of librdkafka that is short of one message would wait for it for ever."""
    topic, count = varied_topic
    program = [sys.executable, "-m", interrupted_reader.__name__]
    read = subprocess.run(
        [*program, kind, kafka_service.bootstrap, topic, str(count)],
        env={name: value for name, value in os.environ.items() if "COV" not in name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    assert read.stdout.startswith(f"{interrupted_reader.TURNS} interrupted"), read.stdout


def test_many_aborted_messages_are_no_stall(
    kafka_service: KafkaEndpoint,
    kafka_wire: KafkaWire,
    kafka_topic: TopicFactory,
    make_fetcher: MakeFetcher,
) -> None:
    """Nothing is delivered for longer than the reader waits, but the partition is read on."""
    topic, count = kafka_topic(), 400
    producer = Producer(
        client_settings(kafka_service) | {"transactional.id": topic, "batch.num.messages": 1}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"x" * 1_000)
    producer.flush(PATIENCE)
    producer.abort_transaction(PATIENCE)
    wait_for(lambda: end_offsets(kafka_service, topic)[0] == count + 1)
    # librdkafka asks for twice as much whenever nothing comes of a request: nine of them.
    settings = {"bootstrap.servers": kafka_wire.bootstrap, "fetch.message.max.bytes": "1000"}
    kafka_wire.wire.delay(0.6)
    began = time.monotonic()
    assert read(make_fetcher(settings), topic, 0, count + 1, stall_timeout=4.0) == []
    assert time.monotonic() - began > 5


def _fetching() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("fetch ")]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

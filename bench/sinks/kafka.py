"""Kafka, beside a plain producer: idempotent, with the same acknowledgements, no transaction.

It stays open from one turn to the next, as a plain producer does: it connects once. The sink makes
a new one for every epoch, since that is what fences others out.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

import fastavro
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.measure import timed, timed_and_undone
from bench.sinks.place import Peer
from bench.sinks.rows import SINK
from laminar_dagster.clients.kafka.options import RegistryOptions
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions, NewTopics
from laminar_dagster.sinks.kafka.sink import EPOCH_HEADER, SINK_HEADER, KafkaSink

_PARTITIONS: Final = 4
_TIMEOUT: Final = 60.0
_AT_ONCE: Final = 10_000
_LOOK: Final = 0.1
# Those of the sink, so that a transaction is all that differs.
_PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 200_000,
    "delivery.report.only.error": True,
}
_HEADERS: Final[list[tuple[str, str | bytes | None]]] = [
    (SINK_HEADER, SINK.encode()),
    (EPOCH_HEADER, b"1"),
]
_SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "click",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "page", "type": ["null", "string"]},
            {"name": "amount", "type": ["null", "double"]},
            {"name": "n", "type": ["null", "int"]},
        ],
    }
)
_HEADER: Final = struct.pack(">bI", 0, 1)


@dataclass(frozen=True)
class KafkaPlace:
    """Topics whose names begin with a word of their own."""

    servers: str
    format: Literal["json", "avro"]
    registry: str = ""
    prefix: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")
    # How many were read so far, and up to where in each partition: no message is read twice.
    _counted: dict[str, tuple[int, dict[int, int]]] = field(default_factory=dict, repr=False)

    replaces = False
    commit_limit = 0.1

    @property
    def name(self) -> str:
        """Of its figures."""
        return f"sink-kafka/{self.format}"

    @property
    def title(self) -> str:
        """For people."""
        return f"Kafka, {self.format}, {_PARTITIONS} partitions"

    def sink(self) -> Sink:
        """See ``Place``."""
        options = KafkaSinkOptions(
            bootstrap_servers=self.servers,
            topic=self.topic(SINK),
            format=self.format,
            registry=RegistryOptions(url=self.registry) if self.registry else None,
            ledger_topic=f"{self.prefix}-ledger",
            new_topics=NewTopics(partitions=_PARTITIONS, replication=1),
        )
        # Transactional ids follow from the pipeline's name, and are the cluster's.
        return KafkaSink(SINK, PipelineName(self.prefix), options)

    def prepare(self, *names: str) -> None:
        """See ``Place``."""
        topics = [NewTopic(self.topic(name), _PARTITIONS, 1) for name in names]
        # Kept, since what it was asked is forgotten with it.
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for each in admin.create_topics(topics).values():
            each.result(_TIMEOUT)

    def peers(self, rows: pa.Table) -> tuple[Peer, ...]:
        """See ``Place``."""
        encode, title = _ENCODERS[self.format]
        ready = cache(lambda: list(encode(rows)))
        return (
            Peer(
                "plain",
                f"a producer without a transaction, {title}",
                lambda: self._produce("plain", encode(rows)),
            ),
            Peer(
                "bytes",
                "a producer without a transaction, of messages made beforehand",
                lambda: self._produce("bytes", ready()),
            ),
        )

    def count(self, name: str) -> int:
        """See ``Place``. What was aborted is not counted, nor is what ends a transaction."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": f"{self.prefix}-count",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        found, places = self._counted.get(name, (0, dict.fromkeys(range(_PARTITIONS), 0)))
        consumer = Consumer(settings)
        try:
            topic = self.topic(name)
            consumer.assign([TopicPartition(topic, *place) for place in places.items()])
            left, quiet = _PARTITIONS, 0.0
            while left:
                messages = consumer.consume(_AT_ONCE, _LOOK)
                quiet = 0.0 if messages else quiet + _LOOK
                if quiet > _TIMEOUT:
                    raise TimeoutError(f"{topic} cannot be read")
                ends = sum(each.error() is not None for each in messages)
                left -= ends
                found += len(messages) - ends
            wanted = [TopicPartition(topic, partition) for partition in places]
            reached = {each.partition: each.offset for each in consumer.position(wanted)}
            # A partition of which nothing was read has no position.
            self._counted[name] = (
                found,
                {
                    partition: max(before, reached[partition])
                    for partition, before in places.items()
                },
            )
            return found
        finally:
            consumer.close()

    def bare_begins(self, times: int) -> tuple[float, ...]:
        """See ``Place``."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": f"{self.prefix}-bare"}
        )
        producer.init_transactions(_TIMEOUT)
        return tuple(
            timed_and_undone(producer.begin_transaction, producer.abort_transaction)
            for _ in range(times)
        )

    def plain_rollback(self, rows: pa.Table) -> float | None:
        """See ``Place``."""
        encode, _ = _ENCODERS[self.format]
        producer = Producer(
            {
                **_PRODUCER,
                "bootstrap.servers": self.servers,
                "transactional.id": f"{self.prefix}-rollback",
            }
        )
        producer.init_transactions(_TIMEOUT)
        producer.begin_transaction()
        _send(producer, self.topic("plain"), encode(rows))
        return timed(producer.abort_transaction)

    def _produce(self, name: str, values: Iterable[bytes]) -> None:
        _send(_producer(self.servers), self.topic(name), values)

    def topic(self, name: str) -> str:
        """Of a peer, or the sink's own."""
        return f"{self.prefix}-{name}"


@cache
def _producer(servers: str) -> Producer:
    settings: dict[str, Any] = {**_PRODUCER, "bootstrap.servers": servers}
    return Producer(settings)


def _send(producer: Producer, topic: str, values: Iterable[bytes]) -> None:
    """Messages with as many headers as the sink's have; what fails is told, and nothing else."""
    problems: list[object] = []

    def undelivered(error: object, _message: object) -> None:
        problems.append(error)

    for value in values:
        while True:
            try:
                producer.produce(topic, value, headers=_HEADERS, on_delivery=undelivered)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_TIMEOUT) or problems:
        raise KafkaException(f"not all was delivered: {problems[:1]}")


def _json(rows: pa.Table) -> Iterable[bytes]:
    for row in rows.to_pylist():
        row["at"] = row["at"].isoformat()
        yield json.dumps(row).encode()


def _avro(rows: pa.Table) -> Iterable[bytes]:
    for row in rows.to_pylist():
        buffer = io.BytesIO(_HEADER)
        buffer.seek(len(_HEADER))
        fastavro.schemaless_writer(buffer, _SCHEMA, row)
        yield buffer.getvalue()


_ENCODERS: Final[dict[str, tuple[Callable[[pa.Table], Iterable[bytes]], str]]] = {
    "json": (_json, "json.dumps"),
    "avro": (_avro, "fastavro"),
}

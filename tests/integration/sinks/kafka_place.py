"""Where the tests of the Kafka sink write, and how an independent client reads it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from laminar_dagster.core.ids import PipelineName, SinkId
from laminar_dagster.core.ports import ArrowSchema, Sink
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions, Limits, NewTopics
from laminar_dagster.sinks.kafka.sink import KafkaSink
from laminar_dagster.testing.sink_contract import Mode, Row, StagedRow
from tests.unit.sinks.staging import COLUMNS, encode

_UNTIL_ALL_HAVE_HEARD = 1.0

LIMITS = Limits(connect=20.0, transaction=20.0, commit=15.0)


@dataclass(frozen=True)
class KafkaPlace:
    """Topics of a cluster that begin with a name of their own."""

    bootstrap: str
    prefix: str
    partitions: int = 1
    instances: int = 1

    @classmethod
    def new(cls, bootstrap: str, **others: Any) -> KafkaPlace:
        """A place that nobody else has."""
        return cls(bootstrap, f"t{uuid.uuid4().hex}", **others)

    @property
    def pipeline(self) -> PipelineName:
        """Transactional ids are the cluster's, so each place has a pipeline of its own."""
        return PipelineName(self.prefix)

    def topic(self, sink_id: SinkId) -> str:
        """The topic of a sink."""
        return f"{self.prefix}-{sink_id}"

    def options(self, sink_id: SinkId, mode: Mode = "append", **others: Any) -> KafkaSinkOptions:
        """Of a sink, with some of them replaced."""
        found = KafkaSinkOptions(
            bootstrap_servers=self.bootstrap,
            topic=self.topic(sink_id),
            mode=mode,
            key_columns=("key",) if mode == "upsert" else (),
            instances=self.instances,
            ledger_topic=f"{self.prefix}-ledger",
            new_topics=NewTopics(partitions=self.partitions, replication=1),
            limits=LIMITS,
        )
        return replace(found, **others)

    def sink(self, sink_id: SinkId, mode: Mode = "append", **others: Any) -> KafkaSink:
        """A sink, with some of its options replaced."""
        return KafkaSink(sink_id, self.pipeline, self.options(sink_id, mode, **others))

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        return self.sink(sink_id, mode)

    def read(self, sink_id: SinkId) -> list[Row]:
        """What a consumer sees who reads committed messages; by key, the last one counts."""
        rows: list[Row] = []
        latest: dict[bytes, Row | None] = {}
        for message in messages(self.bootstrap, self.topic(sink_id)):
            key, value = message.key(), message.value()
            assert isinstance(value, bytes | None)
            found = json.loads(value) if value is not None else None
            row = (found["key"], found["value"]) if found else None
            if key is None:
                assert row is not None
                rows.append(row)
            else:
                assert isinstance(key, bytes)
                latest[key] = row
        return rows + [row for row in latest.values() if row is not None]

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        return encode(rows, weights)

    def columns(self) -> ArrowSchema:
        return COLUMNS


def messages(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> Iterator[Message]:
    """Every message of a topic that is committed now, partition by partition.

    A commit is answered a moment before every partition has heard of it, so what was written by
    now is waited for. Not for long: its writer may have died, and then nothing becomes of it.
    """
    ends = _ends(bootstrap, topic)
    consumer = Consumer(_reading(bootstrap, isolation))
    try:
        left = {partition: end for partition, end in ends.items() if end}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        heard: set[int] = set()
        begun = time.monotonic()
        while left:
            message = consumer.poll(0.05)
            if message is None:
                waited = time.monotonic() - begun
                assert waited < 20 or heard >= left.keys(), f"{topic} cannot be read"
                if heard >= left.keys() and waited > _UNTIL_ALL_HAVE_HEARD:
                    return
                continue
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                # Whole transactions end here.
                heard.add(partition)
                if offset >= left.get(partition, 0):
                    left.pop(partition, None)
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer(_reading(bootstrap, "read_uncommitted"))
    try:
        known = consumer.list_topics(topic, 20).topics[topic]
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)[1]
            for partition in known.partitions
        }
    finally:
        consumer.close()


def _reading(bootstrap: str, isolation: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "independent",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }

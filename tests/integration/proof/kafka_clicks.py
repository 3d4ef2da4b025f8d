"""Clicks in a topic: who wrote what, what of it counts, and the answer over that.

The answer knows nothing of the source: it is DuckDB's, over the values that were sent, in the order
of the offsets at which the broker took them, without those of transactions that were aborted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Consumer, Producer, TopicPartition

from infra.kafka import KafkaEndpoint
from laminar_dagster.core.points import Point, unwatch, watch
from laminar_dagster.runtime.pipeline import Pipeline
from tests.integration.proof.answer import CLICKS, Answer
from tests.integration.proof.stream import append_lines, random_lines
from tests.services.kafka import Outgoing, client_settings, create_topic, end_offsets, send

PARTITIONS: Final = 3
_PATIENCE: Final = 60.0
_SOURCE: Final = """
CREATE SOURCE TABLE clicks (
  page STRING, amount DOUBLE, price DECIMAL(10, 2), n INT, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (
  connector = 'kafka', topic = '{topic}', 'bootstrap.servers' = '{servers}',
  'group.id' = '{topic}', format = 'json', 'watermark.idle.timeout.ms' = '86400000',
  'connect.timeout.ms' = '60000'
);
"""


@dataclass(frozen=True)
class Sent:
    """A value that the broker has; None is a tombstone."""

    offset: int
    line: str | None
    transaction: Transaction | None


@dataclass
class Transaction:
    """Where it wrote, by whom, and how it ended."""

    producer: Producer
    ending: Literal["open", "commit", "abort"] = "open"
    partitions: set[int] = field(default_factory=set)


@dataclass
class ClickTopic:
    """A topic of clicks, and an account of it."""

    endpoint: KafkaEndpoint
    name: str
    config: Mapping[str, str] = field(default_factory=dict)
    log: dict[int, list[Sent]] = field(init=False)
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    _transactions: int = 0

    def __post_init__(self) -> None:
        create_topic(self.endpoint, self.name, PARTITIONS, self.config)
        self.log = {number: [] for number in range(PARTITIONS)}
        self._forgotten = dict.fromkeys(self.log, 0)
        self._plain = Producer({**client_settings(self.endpoint), "log_level": 0})

    @property
    def source(self) -> str:
        """The statement that reads it. Its group has its name."""
        return _SOURCE.format(topic=self.name, servers=self.endpoint.bootstrap)

    def write(self, count: int, begin: float, keys: int | None = None) -> None:
        """So many records to each partition: a little late, a little garbage, some tombstones.

        Args:
            count: How many.
            begin: Seconds after the first of all.
            keys: Over how many keys; without, they have none.
        """
        for partition in self.log:
            self._send(self._plain, partition, self._lines(count, begin), None, keys)

    def write_in_transaction(self, count: int, begin: float) -> Transaction:
        """The same, left open."""
        self._transactions += 1
        name = f"{self.name}-{self._transactions}"
        settings = client_settings(self.endpoint) | {
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
        transaction = Transaction(Producer(settings))
        transaction.producer.init_transactions(_PATIENCE)
        transaction.producer.begin_transaction()
        for partition in self.log:
            self._send(transaction.producer, partition, self._lines(count, begin), transaction)
        return transaction

    def end(self, transaction: Transaction, how: Literal["commit", "abort"]) -> None:
        """End it, and wait until what it wrote is decided."""
        if how == "commit":
            transaction.producer.commit_transaction(_PATIENCE)
        else:
            transaction.producer.abort_transaction(_PATIENCE)
        transaction.ending = how
        deadline = time.monotonic() + _PATIENCE
        while end_offsets(self.endpoint, self.name) != self.ends():
            assert time.monotonic() < deadline, "the marks of a transaction do not come"
            time.sleep(0.05)

    def ends(self) -> dict[int, int]:
        """Where each partition ends, when every transaction is over and has left its mark."""
        found = {}
        for partition, log in self.log.items():
            over = {id(each.transaction) for each in log if each.transaction is not None}
            found[partition] = len(log) + len(over) + self._forgotten[partition]
        return found

    def forget_what_was_compacted(self, at_most: int) -> None:
        """Wait until no partition holds more records than that, and account for the rest."""
        deadline = time.monotonic() + _PATIENCE
        held = self._held()
        while max(map(len, held.values())) > at_most:
            assert time.monotonic() < deadline, "nothing is compacted"
            time.sleep(0.2)
            held = self._held()
        for partition, log in self.log.items():
            left = [sent for sent in log if sent.offset in held[partition]]
            self._forgotten[partition] += len(log) - len(left)
            self.log[partition] = left

    def _held(self) -> dict[int, set[int]]:
        """The offsets that there are, as any consumer sees them."""
        settings = {"group.id": "any", "enable.partition.eof": True, "enable.auto.commit": False}
        consumer = Consumer(client_settings(self.endpoint) | settings)
        found: dict[int, set[int]] = {number: set() for number in self.log}
        try:
            consumer.assign([TopicPartition(self.name, number, 0) for number in self.log])
            over = 0
            while over < len(self.log):
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        found[int(message.partition() or 0)].add(int(message.offset() or 0))
                    else:
                        over += 1
        finally:
            consumer.close()
        return found

    def committed(self, partition: int) -> list[Sent]:
        """What counts, in its order."""
        found = []
        for sent in sorted(self.log[partition], key=lambda each: each.offset):
            assert sent.transaction is None or sent.transaction.ending != "open"
            if sent.transaction is None or sent.transaction.ending == "commit":
                found.append(sent)
        return found

    def add_to(self, answer: Answer, scratch: Path) -> int:
        """Tell DuckDB of everything that counts; returns how many tombstones are in it."""
        tombstones = 0
        for partition in self.log:
            found = [sent.line for sent in self.committed(partition)]
            lines = [line for line in found if line is not None]
            tombstones += len(found) - len(lines)
            append_lines(scratch / "clicks" / f"{partition}.ndjson", lines)
        answer.add("clicks", scratch / "clicks", CLICKS)
        return tombstones

    def group_stands(self) -> dict[int, int]:
        """What a lag tool would see."""
        consumer = Consumer(client_settings(self.endpoint) | {"group.id": self.name})
        try:
            wanted = [TopicPartition(self.name, number) for number in self.log]
            return {each.partition: each.offset for each in consumer.committed(wanted, _PATIENCE)}
        finally:
            consumer.close()

    def _lines(self, count: int, begin: float) -> list[str | None]:
        lines = random_lines(self.chance, count, begin=begin)
        return [line or None for line in lines]

    def _send(
        self,
        producer: Producer,
        partition: int,
        lines: Sequence[str | None],
        transaction: Transaction | None,
        keys: int | None = None,
    ) -> None:
        messages = [
            Outgoing(
                None if line is None else line.encode(),
                None if keys is None else b"%d" % (place % keys),
            )
            for place, line in enumerate(lines)
        ]
        taken = send(producer, self.name, messages, partition)
        for line, message in zip(lines, taken, strict=True):
            self.log[partition].append(Sent(int(message.offset() or 0), line, transaction))
        if transaction is not None:
            transaction.partitions.add(partition)


@dataclass(frozen=True)
class WaitBeforeReading:
    """An attempt that has begun, and reads nothing until it is told to go on."""

    def arm(self, pipeline: Pipeline, scratch: Path) -> Pipeline:
        def wait(point: Point, _checkpoint: str) -> None:
            if point is Point.ATTEMPT_BEGUN:
                unwatch(wait)
                (scratch / "begun").touch()
                wait_for_file(scratch / "go-on")

        watch(wait)
        return pipeline


def wait_for_file(file: Path) -> None:
    """Of another process."""
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline, f"nobody made {file}"
        time.sleep(0.02)

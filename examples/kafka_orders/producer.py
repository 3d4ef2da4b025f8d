"""Sends orders at a rate until it is asked to end, and then tells what it sent.

Orders come up to three seconds out of order, which the watermark allows. Besides, there are
stragglers that come too late and records that are no orders at all. The last order of every
partition is a minute ahead of the others, so that all windows before it close.
"""

from __future__ import annotations

import argparse
import random
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from examples.kafka_orders.topic import PARTITIONS, TOPIC

_PRODUCTS: Final = 40
_CUSTOMERS: Final = 500
_TICK: Final = 0.02
_FLUSH_SECONDS: Final = 60.0
_MICROS: Final = 1_000_000
# Shares of all records.
_DISORDERLY: Final = 0.05
_STRAGGLERS: Final = 0.002
_BROKEN: Final = 0.001
_MOST_DISORDER: Final = 3 * _MICROS
# Beyond the five seconds of the watermark, from whatever the orders before were displaced by.
_STRAGGLER: Final = (20 * _MICROS, 60 * _MICROS)
# Nobody can be late as long as there is nobody before, in any partition.
_ORDERLY_BEGINNING: Final = 500
_LAST_ORDER_AHEAD: Final = 60 * _MICROS
_NO_ORDERS: Final = (
    b'{"order_id":17,"product":"product-03","am',
    b"GET /orders/17 HTTP/1.1",
    b'["product-03", 17]',
    b'{"order_id":"none","product":"product-03","amount":9.99,"ts":"2026-01-01T09:30:00Z"}',
    b'{"order_id":17,"product":null,"amount":9.99,"ts":"2026-01-01T09:30:00Z"}',
    b'{"order_id":17,"product":"product-03","amount":9.99,"ts":"yesterday"}',
    b'{"order_id":17,"product":"product-03","amount":9.99}',
)


class Sent(msgspec.Struct, frozen=True):
    """What the producer knows of its records.

    Attributes:
        records: All that it sent.
        acknowledged: Those that the broker confirmed.
        late: Stragglers.
        broken: Records that are no orders.
        cents: What the orders that are on time cost together.
        last_cents: The part of it in the last orders, one a partition, whose window stays open.
        ends: By partition, the offset after the last one that was confirmed.
    """

    records: int
    acknowledged: int
    late: int
    broken: int
    cents: int
    last_cents: int
    ends: dict[int, int]


class OrderDesk:
    """Makes records, and keeps the books."""

    def __init__(self, servers: str, seed: int = 7) -> None:
        """Connect."""
        self._random = random.Random(seed)
        self._acknowledged = 0
        self._ends: dict[int, int] = {}
        self._problem: KafkaError | None = None
        self._records = self._late = self._broken = self._cents = self._last_cents = 0
        # Event time goes on by the clock that nobody sets back.
        self._epoch = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 500_000,
            }
        )

    def send(self, count: int) -> None:
        """So many records, as of now."""
        now = self._now()
        for _ in range(count):
            chance = self._random.random()
            if chance < _BROKEN:
                self._broken += 1
                self._produce(self._random.choice(_NO_ORDERS))
            elif chance < _BROKEN + _STRAGGLERS and self._records >= _ORDERLY_BEGINNING:
                self._late += 1
                self._produce(self._order(now - self._random.randint(*_STRAGGLER))[0])
            else:
                behind = (
                    int(self._random.random() * _MOST_DISORDER) if chance > 1 - _DISORDERLY else 0
                )
                value, cents = self._order(now - behind)
                self._cents += cents
                self._produce(value)
        self._producer.poll(0)
        self._require_no_problem()

    def close(self) -> Sent:
        """Send the last orders, and wait until the broker has everything.

        Raises:
            RuntimeError: It does not confirm.
        """
        for partition in range(PARTITIONS):
            value, cents = self._order(self._now() + _LAST_ORDER_AHEAD)
            self._cents += cents
            self._last_cents += cents
            self._produce(value, partition)
        left = self._producer.flush(_FLUSH_SECONDS)
        self._require_no_problem()
        if left:
            raise RuntimeError(f"{left:,} records were not confirmed within {_FLUSH_SECONDS:g} s")
        return Sent(
            records=self._records,
            acknowledged=self._acknowledged,
            late=self._late,
            broken=self._broken,
            cents=self._cents,
            last_cents=self._last_cents,
            ends=self._ends,
        )

    def _now(self) -> int:
        return self._epoch + time.monotonic_ns() // 1000

    def _order(self, micros: int) -> tuple[bytes, int]:
        """An order of that moment, and what it costs in cents."""
        cents = int(self._random.random() * 20_000) + 1
        product = int(self._random.random() * _PRODUCTS)
        text = (
            f'{{"order_id":{self._records},"product":"product-{product:02}",'
            f'"amount":{cents // 100}.{cents % 100:02},"ts":"{_as_text(micros)}"}}'
        )
        return text.encode(), cents

    def _produce(self, value: bytes, partition: int = -1) -> None:
        self._records += 1
        # Some customers order more than others, so partitions differ in length.
        key = f"customer-{int(self._random.random() ** 2 * _CUSTOMERS)}"
        while True:
            try:
                self._producer.produce(TOPIC, value, key, partition, on_delivery=self._told)
                return
            except BufferError:
                self._producer.poll(0.1)
                self._require_no_problem()

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._problem = error
            return
        self._acknowledged += 1
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)

    def _require_no_problem(self) -> None:
        if self._problem is not None:
            raise RuntimeError(f"the broker did not take a record: {self._problem}")


def _as_text(micros: int) -> str:
    moment = datetime.fromtimestamp(micros // _MICROS, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros % _MICROS:06}Z"


def main() -> None:
    """Send until SIGTERM, then write down what was sent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--rate", type=int, required=True, help="records a second")
    parser.add_argument("--account", type=Path, required=True, help="file for what was sent")
    arguments = parser.parse_args()
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    desk = OrderDesk(arguments.servers)
    begun, sent = time.monotonic(), 0
    while not end.wait(_TICK):
        # After a standstill, what was missed is not sent all at once.
        due = int((time.monotonic() - begun) * arguments.rate) - sent
        now = min(due, arguments.rate // 2 + 1)
        desk.send(now)
        sent += due
    part = arguments.account.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(desk.close()))
    part.rename(arguments.account)


if __name__ == "__main__":
    main()

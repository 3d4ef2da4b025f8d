"""Prints how much memory it takes to read partitions side by side: ``KIND SERVERS TOPIC ENDS…``.

``KIND`` is a reader of ours, or ``consumer`` for a plain client. A process of its own, because
memory that was used once is seldom given back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from confluent_kafka import Consumer, TopicPartition

from bench.kafka.message_formats import SCHEMA
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import KafkaPosition, SourceRange
from laminar_dagster.sources.kafka.options import KafkaOptions, ReaderKind
from laminar_dagster.sources.kafka.source import KafkaSource

PLAIN: Final = "consumer"
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_FEW: Final = 1_000
_POLL: Final = 1_000
_TIMEOUT: Final = 30.0


def main(kind: str, servers: str, topic: str, ends: Sequence[int]) -> int:
    """Bytes of resident memory, at the most, above what the process began with."""
    read = _consumed if kind == PLAIN else partial(_read, kind)
    # What is loaded with the first record is no partition's.
    for _ in read(servers, topic, [min(_FEW, ends[0])]):
        pass
    before = _resident()
    most = before
    records = 0
    for count in read(servers, topic, ends):
        records += count
        most = max(most, _resident())
    if records != sum(ends):
        raise RuntimeError(f"{records} records instead of {sum(ends)}")
    return most - before


def _read(kind: str, servers: str, topic: str, ends: Sequence[int]) -> Iterator[int]:
    options = KafkaOptions(
        bootstrap_servers=servers,
        topics=(topic,),
        group_id="bench-memory",
        reader=cast(ReaderKind, kind),
    )
    reader = KafkaSource(SourceId("clicks"), SCHEMA, options).reader()
    return _by_turns([reader.read(_range(topic, part, end)) for part, end in enumerate(ends)])


def _by_turns(streams: list[Any]) -> Iterator[int]:
    """A chunk of each, as if as many tasks read at once."""
    while streams:
        for stream in list(streams):
            chunk = next(stream, None)
            if chunk is None:
                streams.remove(stream)
            else:
                yield chunk.records


def _consumed(servers: str, topic: str, ends: Sequence[int]) -> Iterator[int]:
    settings: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "bench-memory"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, part, 0) for part in range(len(ends))])

    def polled() -> Iterator[int]:
        left = sum(ends)
        while left:
            messages = consumer.consume(min(left, _POLL), _TIMEOUT)
            left -= len(messages)
            yield len(messages)
        consumer.close()

    return polled()


def _range(topic: str, part: int, end: int) -> SourceRange:
    return SourceRange(
        start=KafkaPosition(topic=topic, partition=part, offset=0),
        end=KafkaPosition(topic=topic, partition=part, offset=end),
    )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    _, *words = sys.argv
    print(main(words[0], words[1], words[2], [int(each) for each in words[3:]]))

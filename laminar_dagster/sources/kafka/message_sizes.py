"""Estimates the size of unread messages, by sampling the first few of some partitions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from laminar_dagster.clients.kafka.cluster import Lane
from laminar_dagster.clients.kafka.consumer_settings import consumer_settings

UNKNOWN_BYTES: Final = 1024.0

_LOOK_BYTES: Final = 64 * 1024
_MOST: Final = 500
# At most this many partitions are sampled: each costs a request to the broker.
_LANES: Final = 4
_SECONDS: Final = 2.0


def mean_sizes(
    starts: Mapping[Lane, int], waiting: Mapping[Lane, int], settings: Mapping[str, str]
) -> dict[Lane, float]:
    """The mean size of a message in each partition.

    It only serves to keep an epoch about as large as its limit says. So a few partitions with the
    largest backlog are sampled, and the others assumed to be like them; where nothing arrives in
    time, a default will do.

    Args:
        starts: Where to sample.
        waiting: The number of unread messages, by partition.
        settings: librdkafka's settings.
    """
    longest = sorted(waiting, key=lambda lane: (-waiting[lane], lane))[:_LANES]
    found = _look({lane: starts[lane] for lane in longest}, settings)
    usual = sum(found.values()) / len(found) if found else UNKNOWN_BYTES
    return {lane: found.get(lane, usual) for lane in waiting}


def _look(starts: Mapping[Lane, int], settings: Mapping[str, str]) -> dict[Lane, float]:
    """The mean size of the first messages of partitions; without those where none arrived."""
    look = {"fetch.message.max.bytes": str(_LOOK_BYTES), "queued.min.messages": "1"}
    consumer = Consumer(consumer_settings({**settings, **look}))
    sizes: defaultdict[Lane, list[int]] = defaultdict(list)
    unseen = {lane: TopicPartition(*lane, offset) for lane, offset in starts.items()}
    try:
        consumer.assign(list(unseen.values()))
        deadline = time.monotonic() + _SECONDS
        while unseen and time.monotonic() < deadline:
            seen: set[Lane] = set()
            for message in consumer.consume(_MOST, 0.1):
                lane = (str(message.topic()), int(message.partition() or 0))
                seen.add(lane)
                if message.error() is None:
                    sizes[lane].append(len(message))
            # A broker whose batches are larger than the requested size answers with the first
            # partition's alone: pause it to let the others have their turn.
            consumer.pause([unseen.pop(lane) for lane in seen & unseen.keys()])
    except KafkaException:
        # Reading the messages will raise the error.
        pass
    finally:
        consumer.close()
    return {lane: sum(found) / len(found) for lane, found in sizes.items()}

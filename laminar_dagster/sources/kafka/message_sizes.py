"""How large the messages are that wait, by a look at the first few of each partition."""

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
# So many partitions are looked at: each costs an answer of the broker.
_LANES: Final = 4
_SECONDS: Final = 2.0


def mean_sizes(
    starts: Mapping[Lane, int], waiting: Mapping[Lane, int], settings: Mapping[str, str]
) -> dict[Lane, float]:
    """The mean size of a message in partitions.

    It only serves to keep an epoch about as large as its limit says. So the few partitions in
    which most waits are looked at, and the others taken to be like them; where nothing can be
    seen in time, a guess will do.

    Args:
        starts: Where to look.
        waiting: How many messages wait, in each of the partitions that are asked for.
        settings: Of librdkafka.
    """
    longest = sorted(waiting, key=lambda lane: (-waiting[lane], lane))[:_LANES]
    found = _look({lane: starts[lane] for lane in longest}, settings)
    usual = sum(found.values()) / len(found) if found else UNKNOWN_BYTES
    return {lane: found.get(lane, usual) for lane in waiting}


def _look(starts: Mapping[Lane, int], settings: Mapping[str, str]) -> dict[Lane, float]:
    """The mean size of the first messages of partitions, where any could be seen."""
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
            # A broker that has batches larger than what is asked for answers with the first
            # partition's alone: the others have their turn when that one is out of the way.
            consumer.pause([unseen.pop(lane) for lane in seen & unseen.keys()])
    except KafkaException:
        # Whoever reads the messages will be told what is wrong.
        pass
    finally:
        consumer.close()
    return {lane: sum(found) / len(found) for lane, found in sizes.items()}

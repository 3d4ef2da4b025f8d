"""Classifies and counts the errors that librdkafka reports while a partition is read."""

from __future__ import annotations

import json
from collections.abc import Callable

from confluent_kafka import KafkaError

from laminar_dagster.core.errors import LaminarError, RetentionExpired
from laminar_dagster.sources.kafka.failures import failure_of
from laminar_dagster.sources.kafka.messages import place_of

# How long to ask a broker for the offsets that it still holds, which only serve an error message.
ASK_MILLISECONDS = 5_000

# Returns the lowest and the highest offset; raises or returns None if they cannot be had.
Watermarks = Callable[[], "tuple[int, int] | None"]


class Troubles:
    """Raises errors that end a read; counts those that librdkafka recovers from."""

    def __init__(self, source_id: str, topic: str, partition: int) -> None:
        """Start without errors."""
        self.passed = 0
        self._source_id = source_id
        self._topic = topic
        self._partition = partition
        self.last = ""

    def note(self, error: KafkaError | int, reason: str, offset: int, held: Watermarks) -> None:
        """Handle an error.

        Args:
            error: The error or its code.
            reason: librdkafka's text for it.
            offset: The next offset to read.
            held: Asks the broker which offsets it holds.

        Raises:
            LaminarError: librdkafka does not recover from the error.
        """
        where = f"offset {offset} of {place_of(self._topic, self._partition)}"
        failure = failure_of(error, self._source_id, where, reason=reason)
        if failure is None:
            self.passed += 1
            self.last = reason
        elif isinstance(failure, RetentionExpired):
            raise self._expired(where, held())
        else:
            raise failure

    def _expired(self, where: str, held: tuple[int, int] | None) -> LaminarError:
        if held is None:
            return RetentionExpired(self._source_id, where, "not known")
        low, high = held
        has = f"offset {low}" if low < high else "none"
        return RetentionExpired(self._source_id, where, f"{has}, and its log ends before {high}")


def next_offset(statistics: str, topic: str, partition: int) -> int:
    """The next offset to fetch from the broker, by librdkafka's statistics; -1 if missing."""
    topics = json.loads(statistics).get("topics", {})
    found = topics.get(topic, {}).get("partitions", {}).get(str(partition), {})
    return int(found.get("next_offset", -1))

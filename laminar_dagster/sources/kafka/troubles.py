"""What librdkafka has complained about while a partition is read."""

from __future__ import annotations

import json
from collections.abc import Callable

from confluent_kafka import KafkaError

from laminar_dagster.core.errors import LaminarError, RetentionExpired
from laminar_dagster.sources.kafka.failures import failure_of
from laminar_dagster.sources.kafka.messages import place_of

# Milliseconds to ask a broker for what it still holds, when that is only for a message to people.
ASK_MILLISECONDS = 5_000

# The lowest and the highest offset; raises or returns None if they cannot be had.
Watermarks = Callable[[], "tuple[int, int] | None"]


class Troubles:
    """Tells errors that end a read from those that pass: counts these, and remembers the last."""

    def __init__(self, source_id: str, topic: str, partition: int) -> None:
        """Begin without any."""
        self.passed = 0
        self._source_id = source_id
        self._topic = topic
        self._partition = partition
        self.last = ""

    def note(self, error: KafkaError | int, reason: str, offset: int, held: Watermarks) -> None:
        """Take note of an error.

        Args:
            error: Its code, or the error itself.
            reason: What librdkafka says.
            offset: What is read next.
            held: Asks the broker what it holds.

        Raises:
            LaminarError: It does not pass.
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
    """How far the broker has been read, of librdkafka's own statistics; -1 if they do not say."""
    topics = json.loads(statistics).get("topics", {})
    found = topics.get(topic, {}).get("partitions", {}).get(str(partition), {})
    return int(found.get("next_offset", -1))

"""Fetches messages with confluent-kafka's consumer: works everywhere, with all of a message."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.properties import refused_settings
from laminar_dagster.core.errors import InvalidState
from laminar_dagster.sources.kafka.failures import PARTITION_EOF
from laminar_dagster.sources.kafka.messages import (
    HEADERS_TYPE,
    MessageBatch,
    Wanted,
    empty_batch,
)
from laminar_dagster.sources.kafka.troubles import ASK_MILLISECONDS, Troubles, next_offset

_log = logging.getLogger(__name__)

# How long to wait for more messages after the first one arrived.
_LINGER: Final = 0.01


class PortableFetcher:
    """Reads one partition with confluent-kafka. For one thread."""

    def __init__(self, settings: Mapping[str, str], wanted: Wanted, source_id: str) -> None:
        """Prepare; connects to nothing yet.

        Args:
            settings: librdkafka's settings.
            wanted: The parts of a message to fetch.
            source_id: The source's name, for errors.
        """
        self._settings = consumer_settings(settings)
        self._wanted = wanted
        self._source_id = source_id
        self._consumer: Consumer | None = None

    def open(self, topic: str, partition: int, start: int) -> None:
        """Begin to fetch at an offset.

        Raises:
            InvalidConfig: librdkafka refuses the settings.
            InvalidState: It is already open.
        """
        if self._consumer is not None:
            raise InvalidState("the fetcher", "open", "be opened")
        callbacks = {"error_cb": self._on_error, "stats_cb": self._on_statistics, "logger": _log}
        with refused_settings(f"source {self._source_id}", self._settings):
            self._consumer = Consumer({**self._settings, **callbacks})
        self._place = topic, partition
        self._troubles = Troubles(self._source_id, topic, partition)
        self._errors: list[KafkaError] = []
        self._position = self._reached = start
        self.resume()

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        """Up to ``most`` messages; none if none arrived in time.

        Raises:
            AuthFailed, RetentionExpired, SourceUnavailable: The read cannot go on.
        """
        began = time.monotonic()
        consumer = self._opened()
        # A call returns when it has all it asked for or when the time is over. So the first call
        # waits for a single message, and the second briefly for the rest.
        messages = consumer.consume(1, timeout)
        if messages and most > 1:
            messages += consumer.consume(most - 1, _LINGER)
        good = self._only_messages(messages)
        while self._errors:
            self._note(self._errors.pop(0))
        seconds = time.monotonic() - began
        if not good:
            return empty_batch(self._wanted, seconds)
        offsets = np.fromiter((each.offset() for each in good), np.int64, len(good))
        self._position = max(self._position, int(offsets[-1]) + 1)
        wanted = self._wanted
        return MessageBatch(
            offsets=offsets,
            values=pa.array([each.value() for each in good], pa.binary()),
            keys=pa.array([each.key() for each in good], pa.binary()) if wanted.keys else None,
            timestamps=_timestamps(good) if wanted.timestamps else None,
            headers=_headers(good) if wanted.headers else None,
            fetch_seconds=time.monotonic() - began,
        )

    def position(self) -> int:
        """The next offset to be read."""
        return self._position

    def reached(self) -> int:
        """The offset up to which the broker was read, delivered or not."""
        return max(self._reached, self._position)

    def trouble(self) -> str:
        """The last error that librdkafka reported."""
        return self._troubles.last

    def passed_troubles(self) -> int:
        """How many reported errors librdkafka has recovered from."""
        return self._troubles.passed

    def pause(self) -> None:
        """Stop fetching, and drop what was fetched ahead."""
        try:
            self._opened().unassign()
        except KafkaException as error:
            self._note(error.args[0])

    def resume(self) -> None:
        """Fetch again from the position."""
        try:
            self._opened().assign([TopicPartition(*self._place, self._position)])
        except KafkaException as error:
            self._note(error.args[0])

    def close(self) -> None:
        """End every connection and thread; does nothing if closed."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _opened(self) -> Consumer:
        if self._consumer is None:
            raise InvalidState("the fetcher", "closed", "fetch")
        return self._consumer

    def _only_messages(self, messages: Sequence[Message]) -> list[Message]:
        good = []
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() == PARTITION_EOF:
                self._position = max(self._position, int(message.offset() or 0))
            else:
                self._note(error)
        return good

    def _note(self, error: KafkaError) -> None:
        self._troubles.note(error, error.str(), self._position, self._watermarks)

    def _watermarks(self) -> tuple[int, int] | None:
        try:
            return self._opened().get_watermark_offsets(
                TopicPartition(*self._place), timeout=ASK_MILLISECONDS / 1000
            )
        except KafkaException:
            return None

    def _on_error(self, error: KafkaError) -> None:
        # Called within `consume`, which would swallow an exception raised here.
        self._errors.append(error)

    def _on_statistics(self, statistics: str) -> None:
        self._reached = max(self._reached, next_offset(statistics, *self._place))


def _timestamps(messages: Sequence[Message]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # librdkafka returns -1 for a message without a timestamp.
    return np.fromiter((each.timestamp()[1] for each in messages), np.int64, len(messages))


def _headers(messages: Sequence[Message]) -> pa.Array:
    return pa.array([_headers_of(each) for each in messages], HEADERS_TYPE)


def _headers_of(message: Message) -> list[dict[str, object]] | None:
    try:
        found = list(message.headers() or ())
    except (SystemError, UnicodeDecodeError):
        # A name is not UTF-8: confluent-kafka then returns no header at all.
        return None
    return [{"key": key, "value": value} for key, value in found]

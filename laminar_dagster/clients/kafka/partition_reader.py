"""Reads a partition up to where it ends now, and knows what is open in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Literal, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster, Lane
from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.failures import failure_of
from laminar_dagster.clients.kafka.properties import refused_settings
from laminar_dagster.core.errors import LaminarError

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
# Nothing but the news is fetched, so the broker need not wait for more of it.
_QUICK: Final = {"fetch.wait.max.ms": "10", "fetch.error.backoff.ms": "50"}


class PartitionReader:
    """A consumer of one partition that sees nothing but what is committed.

    A partition is read up to its last stable offset, which an open transaction of any writer
    holds back. So a record that was committed just now may not be seen yet, although its writer
    has gone: ``unstable`` tells what is there beyond.

    Attributes:
        position: How far was read.
    """

    def __init__(self, asker: Asker, cluster: Cluster, lane: Lane) -> None:
        """Describe it; nobody is asked anything yet.

        Args:
            asker: For errors.
            cluster: Where the topic is; its patience is how long to wait for an answer.
            lane: The topic, which has to be there, and the partition.
        """
        self.position = 0
        self._asker = asker
        self._cluster = cluster
        self._lane = lane
        self._consumer: Consumer | None = None
        self._trouble = ""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def end(self, *, stable: bool = False) -> int:
        """Where the partition ends now.

        Args:
            stable: Whether it ends where the first transaction is still open.
        """
        held = self._cluster.edges([self._lane], committed=stable)[self._lane]
        self.position = max(self.position, held.earliest)
        return held.end

    def news(self, end: int) -> Iterator[Message]:
        """What has come since the last time, up to an offset.

        Args:
            end: An offset that is stable.

        Raises:
            SourceUnavailable, SinkUnavailable: The cluster does not answer.
            AuthFailed: The topic may not be read.
        """
        if self._consumer is None and self.position < end:
            self._consumer = self._connect("read_committed")
        deadline = time.monotonic() + self._cluster.patience
        while self._consumer is not None and self.position < end:
            message = self._consumer.poll(_LOOK_SECONDS)
            if message is not None and message.error() is None:
                self.position = (message.offset() or 0) + 1
                yield message
            elif message is not None:
                self._note(message)
            elif time.monotonic() > deadline:
                raise self._away(end)

    def unstable(self, end: int) -> Iterator[Message]:
        """What is between the position and an offset, whether it will ever be committed or not.

        Raises:
            SourceUnavailable, SinkUnavailable: The cluster does not answer.
            AuthFailed: The topic may not be read.
        """
        beyond = PartitionReader(self._asker, self._cluster, self._lane)
        beyond.position = self.position
        with beyond:
            beyond._consumer = beyond._connect("read_uncommitted")
            yield from beyond.news(end)

    def _note(self, message: Message) -> None:
        """Take note of what is no record."""
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            # Beyond the last record: what ends transactions has offsets too.
            self.position = max(self.position, message.offset() or 0)
            return
        self._trouble = error.str()
        failure = failure_of(error, self._asker, f"read topic {self._lane[0]}")
        if failure is not None:
            raise failure

    def _away(self, end: int) -> LaminarError:
        read = f"topic {self._lane[0]} was read up to offset {self.position} of {end}"
        reason = f"within {self._cluster.patience:g} s: {self._trouble or 'no answer'}"
        return self._asker.away(f"{read} {reason}")

    def _connect(self, isolation: Literal["read_committed", "read_uncommitted"]) -> Consumer:
        known = consumer_settings({**self._cluster.settings, **_QUICK})
        settings: dict[str, Any] = {
            **known,
            "isolation.level": isolation,
            "error_cb": self._remember,
        }
        with refused_settings(self._asker.shown, known):
            consumer = Consumer(settings, logger=log)
        # An offset by number: by name, librdkafka takes half a second to find it out.
        consumer.assign([TopicPartition(*self._lane, self.position)])
        return consumer

    def _remember(self, error: KafkaError) -> None:
        self._trouble = error.str()

"""Reads a partition up to its present end, and what is still uncommitted after it."""

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
# Only new messages are fetched, so the broker need not wait to batch them.
_QUICK: Final = {"fetch.wait.max.ms": "10", "fetch.error.backoff.ms": "50"}


class PartitionReader:
    """A consumer of one partition that reads only committed messages.

    A partition is read up to its last stable offset, which an open transaction of any producer
    holds back. So a message that was committed just now may not be visible yet: ``unstable`` reads
    what is beyond.

    Attributes:
        position: The next offset to read.
    """

    def __init__(self, asker: Asker, cluster: Cluster, lane: Lane) -> None:
        """Describe the reader; does no I/O.

        Args:
            asker: The source or sink, for errors.
            cluster: The cluster; its patience is how long to wait for messages.
            lane: The topic, which must exist, and the partition.
        """
        self.position = 0
        self._asker = asker
        self._cluster = cluster
        self._lane = lane
        self._consumer: Consumer | None = None
        self._trouble = ""

    def __enter__(self) -> Self:
        """Return the reader."""
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
        """The present end of the partition.

        Args:
            stable: Whether to return the last stable offset, before open transactions.
        """
        held = self._cluster.edges([self._lane], committed=stable)[self._lane]
        self.position = max(self.position, held.earliest)
        return held.end

    def news(self, end: int) -> Iterator[Message]:
        """Read from the position up to an offset.

        Args:
            end: An offset up to which messages are stable.

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
        """Read from the position up to an offset, including messages that may never be committed.

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
        """Handle an entry that is not a message."""
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            # The end may be beyond the last message: control records have offsets too.
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
        # Start at a numeric offset: librdkafka takes half a second to resolve a symbolic one.
        consumer.assign([TopicPartition(*self._lane, self.position)])
        return consumer

    def _remember(self, error: KafkaError) -> None:
        self._trouble = error.str()

"""A producer for one transaction, with errors that say whether it may have been committed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.properties import refused_settings
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    ConnectionLost,
    TransactionAbortFailed,
    TransactionBeginFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.kafka import errors
from laminar_dagster.sinks.kafka.options import Limits

log = logging.getLogger(__name__)

Headers = list[tuple[str, str | bytes | None]]

_LOOK_SECONDS: Final = 0.005
_FLUSH_SECONDS: Final = 0.1
_DEFAULTS: Final = {
    "linger.ms": "5",
    "batch.num.messages": "100000",
    # Connect to all brokers: without a connection, librdkafka finds its coordinator 0.5 s later.
    "enable.sparse.connections": "false",
}


def transactional_id(pipeline: str, sink: str, group: int) -> str:
    """The transactional id of a group of a sink: the same in every process and run.

    Dots within names are escaped, so that no two sinks share an id.
    """
    names = (name.replace(".", "%2E") for name in (pipeline, sink))
    return f"laminar.{'.'.join(names)}.{group}"


class OffsetsRefused(Exception):
    """The offsets of a consumer group could not be committed with the epoch.

    The producer must not be used again: a request without an answer may still be under way, and
    would become part of the producer's next transaction. A new producer fences it out.
    """

    def __init__(self, group: str, reason: str) -> None:
        """Describe the failure for a consumer group."""
        super().__init__(f"the offsets of group {group} are not written with the epoch: {reason}")


class TransactionalProducer:
    """A producer for one transaction, closed after it whatever happened.

    On exit, a transaction that was not committed is aborted; if that fails, the coordinator aborts
    it after its timeout, or when the next producer registers.
    """

    def __init__(
        self, sink_id: SinkId, identity: str, settings: Mapping[str, str], limits: Limits
    ) -> None:
        """Create the client. No request is sent yet.

        Args:
            sink_id: The sink, for errors.
            identity: The transactional id.
            settings: The cluster's settings, and properties from the sink's options.
            limits: Timeouts and buffer size.

        Raises:
            InvalidConfig: librdkafka does not take the settings.
        """
        self.identity = identity
        self._sink_id = sink_id
        self._settings = settings
        self._limits = limits
        self._trouble = ""
        self._fatal: KafkaError | None = None
        self._failed: tuple[KafkaError, str] | None = None
        self._epoch: EpochNumber | None = None
        self._begun = 0.0
        milliseconds = str(round(limits.transaction * 1000))
        with refused_settings(f"sink {sink_id}", settings):
            self._producer = Producer(
                {
                    # Messages cannot be delivered after the transaction's timeout.
                    "message.timeout.ms": milliseconds,
                    **_DEFAULTS,
                    **settings,
                    "acks": "all",
                    "enable.idempotence": "true",
                    "transactional.id": identity,
                    "transaction.timeout.ms": milliseconds,
                    "queue.buffering.max.messages": str(2 * limits.buffered),
                    "delivery.report.only.error": True,
                    "on_delivery": self._undelivered,
                    "error_cb": self._remember,
                },
                logger=log,
            )

    def __enter__(self) -> Self:
        """Return the producer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Abort an open transaction, and destroy the client: it must not retry a commit."""
        if self._epoch is not None:
            self._abort(self._epoch)
        del self._producer

    def fence(self) -> None:
        """Register with the coordinator, which fences out every older instance.

        The transaction that an older instance left open is ended before this returns: a commit that
        was accepted is carried out, any other transaction is aborted.

        Raises:
            SinkUnavailable, TransactionInitFailed: The coordinator cannot do it now.
            AuthFailed: The cluster does not permit it.
            InvalidConfig: The transaction timeout is longer than the broker allows.
        """
        try:
            self._producer.init_transactions(self._limits.connect)
        except KafkaException as error:
            reason = error.args[0]
            self._listen()
            raise errors.while_fencing(
                reason, self._sink_id, self._trouble, self._settings
            ) from None

    def begin(self, epoch: EpochNumber) -> None:
        """Begin the transaction.

        Raises:
            TransactionBeginFailed: It cannot be begun.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            reason = errors.told(error.args[0], self._settings)
            raise TransactionBeginFailed(self._sink_id, epoch, reason) from None
        self._epoch = epoch
        self._begun = time.monotonic()

    def send(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        partitions: Sequence[int],
        headers: Headers,
    ) -> None:
        """Queue messages, at most ``buffered`` at once, after waiting for room in the queue.

        Raises:
            FencedOut, ConnectionLost, WriteFailed, AuthFailed: The transaction has failed.
        """
        self._wait_for(self._limits.buffered)
        try:
            # The loop over the messages runs in C. The client's method gets no local name: through
            # it, the traceback of an error would keep the client alive.
            deque(
                map(
                    partial(self._producer.produce, topic, headers=headers),
                    values,
                    keys,
                    partitions,
                ),
                maxlen=0,
            )
        except (KafkaException, BufferError) as error:
            self._fail(_reason_of(error), "hand over messages")

    def send_offsets(self, group: str, offsets: Sequence[TopicPartition]) -> None:
        """Commit a consumer group's offsets with the epoch. Recovery does not depend on them.

        Raises:
            OffsetsRefused: The offsets were refused; the transaction cannot be used any more.
            FencedOut, ConnectionLost: The transaction has failed.
        """
        assert self._epoch is not None
        member = Consumer({**consumer_settings(self._settings), "group.id": group})
        try:
            self._producer.send_offsets_to_transaction(
                list(offsets), member.consumer_group_metadata(), self._limits.connect
            )
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if errors.is_fenced(reason) or reason.fatal():
                self._fail(reason, f"send the offsets of group {group}")
            raise OffsetsRefused(group, errors.told(reason, self._settings)) from None
        finally:
            member.close()

    def finish(self) -> None:
        """Wait until all messages are delivered.

        Raises:
            FencedOut, ConnectionLost, WriteFailed, AuthFailed: The transaction has failed.
        """
        self._wait_for(0)

    def commit(self) -> None:
        """Commit the transaction.

        Raises:
            CommitOutcomeUnknown: There was no answer, or no conclusive one. Read the ledger.
            FencedOut: A newer instance has taken over. If that was after the commit was accepted,
                the epoch is published, so read the ledger here too.
        """
        assert self._epoch is not None
        # From here on only the coordinator knows the outcome; leaving the context must not abort.
        epoch, self._epoch = self._epoch, None
        try:
            self._producer.commit_transaction(self._limits.commit)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            text = errors.told(reason, self._settings)
            if errors.is_fenced(reason) and not self._is_expired:
                raise errors.before_commit(
                    reason, self._sink_id, epoch, "commit", self._settings
                ) from None
            raise CommitOutcomeUnknown(self._sink_id, epoch, self._with_trouble(text)) from None

    @property
    def _is_expired(self) -> bool:
        """Whether the coordinator may have ended the transaction by itself."""
        return time.monotonic() - self._begun >= self._limits.transaction

    def _wait_for(self, room: int) -> None:
        """Wait until at most ``room`` messages are undelivered."""
        try:
            self._producer.poll(0)
            while self._failed is None and len(self._producer) > room:
                if room == 0:
                    self._producer.flush(_FLUSH_SECONDS)
                else:
                    self._producer.poll(_LOOK_SECONDS)
        except KafkaException as error:
            self._fail(error.args[0], "send messages")
        if self._failed is not None:
            self._fail(*self._failed)

    def _fail(self, error: KafkaError, where: str) -> NoReturn:
        assert self._epoch is not None
        if error.code() == KafkaError._FATAL:  # noqa: SLF001
            # Each call says only that the client gave up; the reason is reported once, by a poll.
            self._listen()
            error = self._fatal or error
        elif error.fatal():
            self._fatal = error
        if errors.is_fenced(error) and self._is_expired:
            # No other instance need exist: the coordinator also fences a producer that timed out.
            seconds = f"{self._limits.transaction:g} s"
            reason = f"the transaction was open for longer than {seconds}: "
            raise ConnectionLost(self._sink_id, reason + errors.told(error, self._settings))
        if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001
            reason = self._with_trouble(errors.told(error, self._settings))
            raise ConnectionLost(self._sink_id, f"{where}: {reason}")
        raise errors.before_commit(error, self._sink_id, self._epoch, where, self._settings)

    def _abort(self, epoch: EpochNumber) -> bool:
        self._epoch = None
        try:
            self._producer.abort_transaction(self._limits.abort)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            # If fenced, the coordinator has already aborted the transaction.
            if not errors.is_fenced(reason):
                text = errors.told(reason, self._settings)
                problem = TransactionAbortFailed(self._sink_id, epoch, text)
                log.warning("%s; %s", problem, problem.advice())
            return False
        self._failed = None
        return True

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None or errors.is_consequence(error) or self._failed is not None:
            return
        key, size = message.key(), len(message.value() or b"")
        shown = f" with the key {_shown(key)}" if key else ""
        where = f"a message of {size} bytes{shown} for {message.topic()}/{message.partition()}"
        self._failed = (error, where)

    def _remember(self, error: KafkaError) -> None:
        self._trouble = error.str()

    def _with_trouble(self, text: str) -> str:
        self._listen()
        return f"{text}; {self._trouble}" if self._trouble else text

    def _listen(self) -> None:
        """Poll for errors that librdkafka reports by callback, and for the fatal one, if any."""
        try:
            self._producer.poll(0)
        except KafkaException as error:
            self._fatal = self._fatal or error.args[0]


def _reason_of(error: KafkaException | BufferError) -> KafkaError:
    found: Any = error.args[0]
    if isinstance(found, KafkaError):
        return found
    return KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001


def _shown(key: Any) -> str:
    text = repr(bytes(key) if isinstance(key, bytes | bytearray) else key)
    return text if len(text) <= 80 else f"{text[:80]}…"

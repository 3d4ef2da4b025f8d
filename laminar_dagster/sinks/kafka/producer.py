"""A producer for one transaction, and the certainty of what became of it."""

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
    # Without a connection at hand, librdkafka looks for its coordinator half a second later.
    "enable.sparse.connections": "false",
}


def transactional_id(pipeline: str, sink: str, group: int) -> str:
    """What the coordinator knows a group of a sink by: the same in every process and run.

    A dot within a name is written otherwise, so that no two sinks share one.
    """
    names = (name.replace(".", "%2E") for name in (pipeline, sink))
    return f"laminar.{'.'.join(names)}.{group}"


class OffsetsRefused(Exception):
    """How far a group has read cannot be written down with the epoch.

    A request without an answer may still be on its way. Were another transaction begun by the
    same producer, it would count as a part of that one when it arrives; a new producer's epoch
    keeps it out.
    """

    def __init__(self, group: str, reason: str) -> None:
        """Of a consumer group."""
        super().__init__(f"the offsets of group {group} are not written with the epoch: {reason}")


class TransactionalProducer:
    """One producer, one transaction. It is thrown away after it, whatever happened.

    A transaction that is neither committed nor aborted when this is left is aborted; if that does
    not work, its coordinator does so when the time is up, or when the next one comes.
    """

    def __init__(
        self, sink_id: SinkId, identity: str, settings: Mapping[str, str], limits: Limits
    ) -> None:
        """Make the client. Nobody is asked anything yet.

        Args:
            sink_id: Whose, for errors.
            identity: Its transactional id.
            settings: To reach the cluster, and what the author has set.
            limits: How long things may take.

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
                    # What cannot be delivered while the transaction lasts is of no use later.
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
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Abort what is open, and destroy the client: it must not go on trying to commit."""
        if self._epoch is not None:
            self._abort(self._epoch)
        del self._producer

    def fence(self) -> None:
        """Register with the coordinator; every older instance is out from then on.

        What such an instance has left behind is ended before this returns: a commit that was
        accepted is carried out, any other transaction is aborted.

        Raises:
            SinkUnavailable, TransactionInitFailed: It cannot be done now.
            AuthFailed: It may not be done.
            InvalidConfig: The transaction may not last as long as it is set to.
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
        """Hand over messages, not more than may be buffered, as soon as there is room for them.

        Raises:
            FencedOut, ConnectionLost, WriteFailed, AuthFailed: The transaction has failed.
        """
        self._wait_for(self._limits.buffered)
        try:
            # The loop over the messages runs in C. No name is given to the client's method, by
            # which the traceback of an error would keep the client alive.
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
        """Write down with the epoch how far its source was read. Nothing depends on it.

        Raises:
            OffsetsRefused: It cannot be done; the transaction is good for nothing any more.
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
        """Wait until the broker has everything.

        Raises:
            FencedOut, ConnectionLost, WriteFailed, AuthFailed: The transaction has failed.
        """
        self._wait_for(0)

    def commit(self) -> None:
        """Commit.

        Raises:
            CommitOutcomeUnknown: There was no answer, or none that tells. Read the ledger.
            FencedOut: A newer instance has taken over. If it came after the commit was accepted,
                the epoch is there: here too the ledger tells.
        """
        assert self._epoch is not None
        # From here on nobody but the coordinator can say what became of it.
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
        """Wait until no more than so many messages are on their way."""
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
            # That it has given up is what each call says; why, is said once.
            self._listen()
            error = self._fatal or error
        elif error.fatal():
            self._fatal = error
        if errors.is_fenced(error) and self._is_expired:
            # Nobody need have taken over: the coordinator bars a producer that was too slow.
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
            # Who is fenced out has nothing to abort: that is done.
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
        """Hear what librdkafka has complained about, and why it has given up, if it has."""
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

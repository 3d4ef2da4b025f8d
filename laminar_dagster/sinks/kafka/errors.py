"""Error translation for a transactional producer.

Before the commit request is sent, an error means that the epoch is not published. After it, only
the broker's answer tells the outcome.
"""

# librdkafka's client-side errors are named with an underscore, but are public.
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.failures import Meaning, meaning_of
from laminar_dagster.clients.kafka.settings import without_secrets
from laminar_dagster.core.errors import (
    ConnectionLost,
    FencedOut,
    InvalidConfig,
    LaminarError,
    SinkUnavailable,
    TransactionInitFailed,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        # The coordinator has expired the producer, or given its id to another one.
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
# Errors that the same message will cause again: retries are of no use.
_UNWRITABLE: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise `max.message.bytes` of the topic",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise `segment.bytes` of the topic",
    KafkaError.INVALID_RECORD: "the broker does not take such records, as a compacted topic does"
    " not take records without a key",
    KafkaError.INVALID_MSG: "",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "",
    KafkaError.POLICY_VIOLATION: "",
}
# A message was purged because another one failed.
_CONSEQUENCES: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def is_fenced(error: KafkaError) -> bool:
    """Whether the broker knows a newer instance of the producer."""
    return error.code() in _FENCED


def is_consequence(error: KafkaError) -> bool:
    """Whether an error only follows from another one."""
    return error.code() in _CONSEQUENCES


def told(error: KafkaError, settings: Mapping[str, str]) -> str:
    """The text of an error, without secrets."""
    return without_secrets(f"{error.str()} ({error.name()})", settings)


def while_fencing(
    error: KafkaError, sink_id: SinkId, trouble: str, settings: Mapping[str, str]
) -> LaminarError:
    """The error to raise if ``init_transactions`` fails.

    Args:
        error: The error from librdkafka.
        sink_id: The sink.
        trouble: The last error that librdkafka reported meanwhile, if any.
        settings: The producer's settings, for their secrets.
    """
    reason = told(error, settings)
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return InvalidConfig(
            f"sink {sink_id}",
            "`transaction.timeout.ms` is longer than the broker allows",
            "lower it, or raise the broker's `transaction.max.timeout.ms`",
        )
    if is_fenced(error):
        return FencedOut(sink_id, reason)
    meaning = meaning_of(error, reason)
    if meaning is Meaning.REFUSED:
        return Asker.sink(sink_id).refused(reason)
    if meaning is Meaning.LASTING:
        return Asker.sink(sink_id).failed(reason)
    if trouble:
        return SinkUnavailable(sink_id, without_secrets(f"{reason}; {trouble}", settings))
    return TransactionInitFailed(sink_id, reason)


def before_commit(
    error: KafkaError,
    sink_id: SinkId,
    epoch: EpochNumber,
    where: str,
    settings: Mapping[str, str],
) -> LaminarError:
    """The error to raise before the commit was sent: the broker aborts, so nothing is published.

    Args:
        error: The error from librdkafka.
        sink_id: The sink.
        epoch: The epoch.
        where: The operation that failed, or the message that was refused.
        settings: The producer's settings, for their secrets.
    """
    reason = f"{where}: {told(error, settings)}"
    if is_fenced(error):
        return FencedOut(sink_id, reason)
    meaning = meaning_of(error, reason)
    is_refusal = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    if is_refusal or meaning is Meaning.REFUSED:
        return Asker.sink(sink_id).refused(reason)
    if error.code() in _UNWRITABLE:
        help_ = _UNWRITABLE[error.code()]
        return WriteFailed(sink_id, epoch, f"{reason}; {help_}" if help_ else reason)
    if meaning is Meaning.LASTING:
        return Asker.sink(sink_id).failed(reason)
    return ConnectionLost(sink_id, reason)

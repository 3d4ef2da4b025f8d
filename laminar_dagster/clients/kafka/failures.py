"""Classifies errors of librdkafka, and translates them to a source's or sink's errors."""

# librdkafka's own errors have an underscore before their names, and are as public as the broker's.
# ruff: noqa: SLF001

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from confluent_kafka import KafkaError

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.core.errors import LaminarError


class Meaning(Enum):
    """What to do about an error."""

    # Ignore: librdkafka retries by itself, and only reports it.
    PASSING = auto()
    # Permanent until somebody changes the credentials or the rights.
    REFUSED = auto()
    # The requested offset is no longer in the log.
    GONE = auto()
    # Unavailable: give up for now, and retry with a new client.
    AWAY = auto()
    # Not known to be transient.
    LASTING = auto()


_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# Readers are set to fail instead of resetting their offset, so these errors show.
_GONE: Final = frozenset(
    {
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
    }
)
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        # A reader of ranges joins no group: ignore what the coordinator reports.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_AWAY: Final = frozenset(
    {
        # A broker's unexpected error, for example while it loses a disk.
        KafkaError.UNKNOWN,
        # A topic that a broker does not know yet, or that is being deleted and created again.
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
        # A damaged batch: a retry may be served by another replica.
        KafkaError.INVALID_MSG,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError._UNDERFLOW,
        # The client has no resources or no time, or is shutting down.
        KafkaError._CRIT_SYS_RESOURCE,
        KafkaError._DESTROY,
        KafkaError._IN_PROGRESS,
        KafkaError._INTR,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._RETRY,
        # The cluster is reorganizing, or has too few replicas for now.
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_BROKER_EPOCH,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        # Fatal to one producer, which is replaced.
        KafkaError._FATAL,
        KafkaError._GAPLESS_GUARANTEE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)

# OpenSSL's errors for certificates: retrying does not help.
_UNTRUSTED: Final = re.compile(r"certificate verify failed|certificate required|unknown ca")


def meaning_of(error: KafkaError, told: str) -> Meaning:
    """Classify an error.

    Args:
        error: An error of librdkafka, or of a broker.
        told: librdkafka's text for it.
    """
    code = error.code()
    is_untrusted = code == KafkaError._SSL and _UNTRUSTED.search(told) is not None
    if code in _REFUSED or is_untrusted:
        return Meaning.REFUSED
    if code in _PASSING:
        return Meaning.PASSING
    if code in _GONE:
        return Meaning.GONE
    return Meaning.AWAY if code in _AWAY or error.retriable() else Meaning.LASTING


def failure_of(
    error: KafkaError, asker: Asker, where: str, *, reason: str = ""
) -> LaminarError | None:
    """The error to raise, or None if librdkafka goes on trying and may yet succeed.

    Args:
        error: The error.
        asker: The source or sink whose connection it is.
        where: What was being done, or the server.
        reason: librdkafka's text for it; by default the error's own text.
    """
    told = reason or error.str()
    meaning = meaning_of(error, told)
    if meaning is Meaning.PASSING:
        return None
    text = f"{where}: {told} ({error.name()})"
    if meaning is Meaning.REFUSED:
        return asker.refused(text)
    return asker.failed(text) if meaning is Meaning.LASTING else asker.away(text)

"""What an error of librdkafka means for the one who asked."""

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

    # Nothing: librdkafka tries again by itself, and says so on the way.
    PASSING = auto()
    # Nothing will change before somebody changes the credentials or the rights.
    REFUSED = auto()
    # What was asked for is no longer in the log.
    GONE = auto()
    # Give up for now.
    OTHER = auto()


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
# A reader is told to fail instead of jumping, so it sees what the reset would have hidden.
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
        # A reader of ranges belongs to no group; what its coordinator says is nothing to it.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)

# What OpenSSL says of a certificate that will not be any better the next time.
_UNTRUSTED: Final = re.compile(r"certificate verify failed|certificate required|unknown ca")


def meaning_of(error: KafkaError, told: str) -> Meaning:
    """What an error means.

    Args:
        error: From librdkafka, or from a broker by way of it.
        told: What librdkafka says about it.
    """
    code = error.code()
    is_untrusted = code == KafkaError._SSL and _UNTRUSTED.search(told) is not None
    if code in _REFUSED or is_untrusted:
        return Meaning.REFUSED
    if code in _PASSING:
        return Meaning.PASSING
    return Meaning.GONE if code in _GONE else Meaning.OTHER


def failure_of(
    error: KafkaError, asker: Asker, where: str, *, reason: str = ""
) -> LaminarError | None:
    """The error to raise, or None if librdkafka goes on trying and may yet succeed.

    Args:
        error: What happened.
        asker: Whose connection it is.
        where: What was being done, or the server.
        reason: What librdkafka says about it; the error's own text if left out.
    """
    told = reason or error.str()
    meaning = meaning_of(error, told)
    if meaning is Meaning.PASSING:
        return None
    text = f"{where}: {told} ({error.name()})"
    return asker.refused(text) if meaning is Meaning.REFUSED else asker.away(text)

"""Translates errors of librdkafka for a source's readers."""

# librdkafka's own errors have an underscore before their names, and are as public as the broker's.
# ruff: noqa: SLF001

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

from laminar_dagster.clients.kafka import failures
from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.failures import Meaning, meaning_of
from laminar_dagster.core.errors import LaminarError, RetentionExpired

# Not an error: there is nothing more, for now.
PARTITION_EOF: Final = int(KafkaError._PARTITION_EOF)


def failure_of(
    error: KafkaError | int,
    source_id: str,
    where: str,
    *,
    reason: str = "",
    earliest: str = "not known",
) -> LaminarError | None:
    """The error to raise, or None if librdkafka goes on trying and may yet succeed.

    A missing topic counts as unavailable, not as replaced: a broker that has just started reports
    it too, until it has caught up with the cluster. Whether the topic was replaced is decided by
    its id, which the next attempt compares with the plan's. A batch with a wrong checksum counts
    as unavailable as well: librdkafka would skip it, and a retry may be served by another replica.

    Args:
        error: The error or its code.
        source_id: The source's name.
        where: The partition and offset that were being read.
        reason: librdkafka's message for it; by default the error's own text.
        earliest: What the partition still holds, if offsets are gone.
    """
    if not isinstance(error, KafkaError):
        error = KafkaError(error)
    if meaning_of(error, reason or error.str()) is Meaning.GONE:
        return RetentionExpired(source_id, where, earliest)
    return failures.failure_of(error, Asker.source(source_id), where, reason=reason)

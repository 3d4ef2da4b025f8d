"""What it takes to fetch the messages of a partition, and the choice between the two ways."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Literal, Protocol

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.fast_fetcher import FastFetcher
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted
from laminar_dagster.sources.kafka.portable_fetcher import PortableFetcher

_log = logging.getLogger(__name__)

Preference = Literal["auto", "fast", "portable"]


class Fetcher(Protocol):
    """Reads one partition from an offset on, in order and without gaps. For one thread.

    Transactions that are not committed are not delivered. A fetcher never jumps: if an offset is
    gone, it fails.
    """

    def open(self, topic: str, partition: int, start: int) -> None:
        """Begin to fetch at an offset.

        Raises:
            InvalidConfig: The settings are refused.
        """

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        """Up to ``most`` messages; none if none came in time.

        Raises:
            AuthFailed: The cluster refuses the credentials, or the topic to them.
            RetentionExpired: The next offset is gone.
            SourceUnavailable: The partition is not there, or a batch of it is damaged.
        """

    def position(self) -> int:
        """The next offset that would be read.

        At the end of the partition it is past markers, aborted messages and compacted ones;
        elsewhere it follows the last message, and passes them with the next one.
        """

    def reached(self) -> int:
        """How far the broker has been read, delivered or not; for telling slow from stuck."""

    def trouble(self) -> str:
        """What the client complained about last; empty if about nothing."""

    def pause(self) -> None:
        """Fetch nothing, and let go of what was fetched ahead."""

    def resume(self) -> None:
        """Go on at the position."""

    def close(self) -> None:
        """End every connection and thread; does nothing if closed."""


def choose_fetcher(
    preference: Preference, settings: Mapping[str, str], wanted: Wanted, source_id: str
) -> Fetcher:
    """The fetcher to read with, not open yet.

    Args:
        preference: ``auto`` is fast where that works and has what is wanted, and portable
            otherwise.
        settings: Of librdkafka; what a reader depends on is set over them.
        wanted: What of each message. Timestamps and headers are read by the portable one alone.
        source_id: For errors.

    Raises:
        InvalidConfig: ``fast`` is asked for, and cannot be had.
    """
    if preference == "portable":
        return PortableFetcher(settings, wanted, source_id)
    reason = _why_not_fast(wanted)
    if reason is None:
        return FastFetcher(settings, wanted, source_id)
    if preference == "fast":
        raise InvalidConfig(
            f"source {source_id}", f"the fast fetcher cannot be used: {reason}", "use `auto`"
        )
    _tell_once(reason)
    return PortableFetcher(settings, wanted, source_id)


def _why_not_fast(wanted: Wanted) -> str | None:
    if wanted.timestamps or wanted.headers:
        return "timestamps and headers take the portable one"
    try:
        librdkafka.library()
    except librdkafka.NotUsable as error:
        return str(error)
    return None


@functools.cache
def _tell_once(reason: str) -> None:
    _log.info("Kafka is read by the portable fetcher: %s", reason)

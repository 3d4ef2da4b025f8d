"""What it takes to fetch the messages of a partition, and the choice between the ways."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Literal, Protocol

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.compiled_gather import Calls, CompiledGather
from laminar_dagster.sources.kafka.fast_fetcher import FastFetcher
from laminar_dagster.sources.kafka.gathering import Gather
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted
from laminar_dagster.sources.kafka.numpy_gather import NumpyGather
from laminar_dagster.sources.kafka.portable_fetcher import PortableFetcher
from laminar_dagster.sources.native.library import NotBuilt, native, why_not

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

    def passed_troubles(self) -> int:
        """How often the client has complained of what it then got over."""

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
        wanted: What of each message.
        source_id: For errors.

    Raises:
        InvalidConfig: ``fast`` is asked for, and cannot be had.
    """
    if preference == "portable":
        return PortableFetcher(settings, wanted, source_id)
    try:
        return FastFetcher(settings, wanted, source_id, _gather(wanted))
    except librdkafka.NotUsable as error:
        reason = str(error)
    if preference == "fast":
        raise InvalidConfig(
            f"source {source_id}", f"the fast fetcher cannot be used: {reason}", "use `auto`"
        )
    _tell_once(f"Kafka is read by the portable fetcher: {reason}")
    return PortableFetcher(settings, wanted, source_id)


def way_to_fetch(preference: Preference, wanted: Wanted) -> str:
    """Which fetcher is chosen in a process like this one, and what it does without, in words."""
    if preference == "portable":
        return "portable"
    try:
        gather = _gather(wanted)
    except librdkafka.NotUsable as error:
        return f"portable: {error}"
    if isinstance(gather, CompiledGather):
        return "fast, compiled"
    return f"fast, without the compiled library: {why_not()}"


def _gather(wanted: Wanted) -> Gather:
    """The quickest gather that can be had here.

    Raises:
        NotUsable: There is none for what is wanted.
    """
    library = librdkafka.library()
    try:
        return CompiledGather(native(), Calls.of(library))
    except NotBuilt as error:
        reason = str(error)
    if wanted.timestamps or wanted.headers:
        raise librdkafka.NotUsable(
            f"timestamps and headers take the compiled library, and {reason}"
        )
    _tell_once(f"Kafka is read without the compiled library: {reason}")
    return NumpyGather(library)


@functools.cache
def _tell_once(line: str) -> None:
    _log.info("%s", line)

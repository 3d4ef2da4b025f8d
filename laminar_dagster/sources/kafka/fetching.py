"""The ``Fetcher`` port, which reads messages of a partition, and the choice of an adapter."""

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
    """Reads one partition from an offset, in order and without gaps. For one thread.

    Messages of uncommitted transactions are not delivered. A fetcher never skips: if an offset is
    gone, it fails.
    """

    def open(self, topic: str, partition: int, start: int) -> None:
        """Begin to fetch at an offset.

        Raises:
            InvalidConfig: The settings are refused.
        """

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        """Up to ``most`` messages; none if none arrived in time.

        Raises:
            AuthFailed: The cluster refuses the credentials, or their access to the topic.
            RetentionExpired: The next offset is gone.
            SourceUnavailable: The partition is unavailable, or a batch of it is damaged.
        """

    def position(self) -> int:
        """The next offset to be read.

        At the end of the partition it is behind control records, aborted messages and compacted
        ones; elsewhere it follows the last message, and passes them with the next one.
        """

    def reached(self) -> int:
        """The offset up to which the broker was read, delivered or not; tells slow from stuck."""

    def trouble(self) -> str:
        """The last error that the client reported; empty if none."""

    def passed_troubles(self) -> int:
        """How many reported errors the client has recovered from."""

    def pause(self) -> None:
        """Stop fetching, and drop what was fetched ahead."""

    def resume(self) -> None:
        """Fetch again from the position."""

    def close(self) -> None:
        """End every connection and thread; does nothing if closed."""


def choose_fetcher(
    preference: Preference, settings: Mapping[str, str], wanted: Wanted, source_id: str
) -> Fetcher:
    """The fetcher to read with, not open yet.

    Args:
        preference: ``auto`` is fast where that works and supports what is wanted, and portable
            otherwise.
        settings: librdkafka's settings; those that a reader depends on are overridden.
        wanted: The parts of a message to fetch.
        source_id: The source's name, for errors.

    Raises:
        InvalidConfig: ``fast`` is required, and cannot be used.
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
    """Describe the fetcher that is chosen in a process like this one, and why not a faster one."""
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
    """The fastest gather that can be used here.

    Raises:
        NotUsable: None supports the wanted parts.
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

"""Fetches messages without a Python object for each: librdkafka's own memory becomes Arrow.

librdkafka hands out pointers to messages. A ``Gather`` copies what they point to into Arrow, all at
once, and releases them. No batch points into librdkafka's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.settings import without_secrets
from laminar_dagster.core.errors import InvalidConfig, InvalidState
from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.failures import PARTITION_EOF
from laminar_dagster.sources.kafka.gathering import Gather, TooLarge
from laminar_dagster.sources.kafka.librdkafka import Library
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted
from laminar_dagster.sources.kafka.troubles import ASK_MILLISECONDS, Troubles, next_offset

_log = logging.getLogger(__name__)

# How long to wait for more messages after the first one arrived.
_LINGER_MILLISECONDS: Final = 10
# Syslog levels, which librdkafka uses.
_LEVELS: Final = {
    0: logging.CRITICAL,
    1: logging.CRITICAL,
    2: logging.CRITICAL,
    3: logging.ERROR,
    4: logging.WARNING,
    5: logging.INFO,
    6: logging.INFO,
}


class FastFetcher:
    """Reads one partition by librdkafka's C API. For one thread."""

    def __init__(
        self, settings: Mapping[str, str], wanted: Wanted, source_id: str, gather: Gather
    ) -> None:
        """Prepare; connects to nothing yet.

        Args:
            settings: librdkafka's settings.
            wanted: The parts of a message to fetch; the gather must support them.
            source_id: The source's name, for errors.
            gather: Copies the messages; must not be shared with another fetcher.

        Raises:
            NotUsable: librdkafka's C API cannot be used on this machine.
        """
        self._library: Library = librdkafka.library()
        self._gather = gather
        self._settings = consumer_settings(settings) | {"log.queue": "true"}
        self._wanted = wanted
        self._source_id = source_id
        self._client: _Client | None = None

    def open(self, topic: str, partition: int, start: int) -> None:
        """Begin to fetch at an offset.

        Raises:
            InvalidConfig: librdkafka refuses the settings.
            InvalidState: It is already open.
        """
        if self._client is not None:
            raise InvalidState("the fetcher", "open", "be opened")
        try:
            handle = self._library.new_client(
                librdkafka.CONSUMER,
                self._settings,
                librdkafka.EVENT_ERROR | librdkafka.EVENT_LOG | librdkafka.EVENT_STATS,
            )
        except librdkafka.RefusedSettings as error:
            problem = without_secrets(str(error), self._settings)
            raise InvalidConfig(f"source {self._source_id}", problem) from None
        self._client = _Client(self._library, handle, topic, partition, self._gather)
        self._troubles = Troubles(self._source_id, topic, partition)
        self._place = topic, partition
        self._position = self._reached = start
        self.resume()

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        """Up to ``most`` messages; none if none arrived in time.

        Raises:
            AuthFailed, RetentionExpired, SourceUnavailable: The read cannot go on.
            InvalidConfig: So many messages do not fit into one batch.
        """
        began = time.monotonic()
        client = self._opened()
        try:
            batch = self._batch(client.take(most, timeout))
        finally:
            self._gather.give_back()
        self._listen(client)
        return replace(batch, fetch_seconds=time.monotonic() - began)

    def position(self) -> int:
        """The next offset that would be read."""
        return self._position

    def reached(self) -> int:
        """The offset up to which the broker was read, delivered or not."""
        return max(self._reached, self._position)

    def trouble(self) -> str:
        """The last error that librdkafka reported."""
        return self._troubles.last

    def passed_troubles(self) -> int:
        """How many reported errors librdkafka has recovered from."""
        return self._troubles.passed

    def pause(self) -> None:
        """Stop fetching, and drop what was fetched ahead."""
        self._require(self._opened().unassign())

    def resume(self) -> None:
        """Fetch again from the position."""
        self._require(self._opened().assign(self._position))

    def close(self) -> None:
        """End every connection and thread; does nothing if closed."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> _Client:
        if self._client is None:
            raise InvalidState("the fetcher", "closed", "fetch")
        return self._client

    def _require(self, code: int) -> None:
        if code:
            reason = self._library.text_of("err2str", code)
            self._troubles.note(code, reason, self._position, self._opened().watermarks)

    def _batch(self, count: int) -> MessageBatch:
        try:
            found = self._gather.gather(count, self._wanted)
        except TooLarge:
            problem = "more than 2 GiB came with one poll"
            where = f"source {self._source_id}"
            raise InvalidConfig(where, problem, "lower `max.poll.records`") from None
        for place in found.others.tolist():
            self._note(int(self._gather.pointers[place]))
        batch = found.batch
        if len(batch):
            self._position = max(self._position, int(batch.offsets[-1]) + 1)
        return batch

    def _note(self, message: int) -> None:
        """Handle an entry that is not a message: an error, or the end of the partition."""
        code, offset = librdkafka.error_of(message)
        if code == PARTITION_EOF:
            self._position = max(self._position, offset)
            return
        reason = self._library.text_of("message_errstr", message)
        self._troubles.note(code, reason, self._position, self._opened().watermarks)

    def _listen(self, client: _Client) -> None:
        """Handle librdkafka's events besides messages: errors, statistics and logs."""
        call = self._library.call
        while event := client.next_event():
            try:
                kind = call["event_type"](event)
                if kind == librdkafka.EVENT_ERROR:
                    code = call["event_error"](event)
                    reason = self._library.text_of("event_error_string", event)
                    self._troubles.note(code, reason, self._position, client.watermarks)
                elif kind == librdkafka.EVENT_STATS:
                    statistics = self._library.text_of("event_stats", event)
                    self._reached = max(self._reached, next_offset(statistics, *self._place))
                elif kind == librdkafka.EVENT_LOG:
                    line, level = self._library.log_line(event)
                    _log.log(_LEVELS.get(level, logging.DEBUG), "%s", line)
            finally:
                call["event_destroy"](event)


class _Client:
    """A consumer of the C API with one partition, and the queues to free with it."""

    def __init__(
        self, library: Library, handle: int, topic: str, partition: int, gather: Gather
    ) -> None:
        self._library, self._call = library, library.call
        self._gather = gather
        self._handle = handle
        self._topic, self._partition = topic.encode(), partition
        self._main = self._call["queue_get_main"](handle)
        self._messages = self._call["queue_get_consumer"](handle)
        # Errors and logs go to the main queue, messages to the other.
        self._call["set_log_queue"](handle, self._main)

    def assign(self, start: int) -> int:
        """Fetch the partition from an offset on; what was fetched before is dropped.

        Returns:
            The code of an error, or 0.
        """
        partitions = self._call["topic_partition_list_new"](1)
        try:
            self._call["topic_partition_list_add"](partitions, self._topic, self._partition)
            self._call["topic_partition_list_set_offset"](
                partitions, self._topic, self._partition, start
            )
            code: int = self._call["assign"](self._handle, partitions)
        finally:
            self._call["topic_partition_list_destroy"](partitions)
        return code

    def unassign(self) -> int:
        """Fetch nothing; returns what `assign` does."""
        code: int = self._call["assign"](self._handle, None)
        return code

    def take(self, most: int, timeout: float) -> int:
        """Receive messages, with errors among them, into the gather's pointers.

        Returns:
            How many. Closing the client hangs until all of them are given back.
        """
        self._gather.make_room(most)
        into = self._gather.pointers.ctypes.data
        # A call returns when it has all it asked for or when the time is over. So the first call
        # waits for a single message, and the second briefly for the rest.
        consume = self._call["consume_batch_queue"]
        count = max(0, consume(self._messages, round(timeout * 1000), into, 1))
        if count and most > 1:
            count += max(0, consume(self._messages, _LINGER_MILLISECONDS, into + 8, most - 1))
        return int(count)

    def next_event(self) -> int | None:
        """The next event that is not a message; the caller must destroy it."""
        event: int | None = self._call["queue_poll"](self._main, 0)
        return event

    def watermarks(self) -> tuple[int, int] | None:
        """The lowest and highest offset of the partition, if the broker answers."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        failed = self._call["query_watermark_offsets"](
            self._handle,
            self._topic,
            self._partition,
            ctypes.byref(low),
            ctypes.byref(high),
            ASK_MILLISECONDS,
        )
        return None if failed else (low.value, high.value)

    def close(self) -> None:
        """End the client, its connections and its threads."""
        # An ``ExitStack`` runs all of these, even if an interrupt comes during one.
        with contextlib.ExitStack() as last_first:
            last_first.callback(
                self._call["destroy_flags"], self._handle, librdkafka.NO_CONSUMER_CLOSE
            )
            last_first.callback(self._call["queue_destroy"], self._main)
            last_first.callback(self._call["queue_destroy"], self._messages)
            last_first.callback(self.unassign)
            last_first.callback(self._gather.give_back)

"""Fetches messages without a Python object for each: librdkafka's own memory becomes Arrow.

librdkafka hands out pointers to messages. Their members are read with one numpy index for each
member, their values are described to Arrow as views of librdkafka's memory, and Arrow copies them
into an array of its own. Then the messages are given back. Nothing that is handed on points into
librdkafka's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.settings import without_secrets
from laminar_dagster.core.errors import InvalidConfig, InvalidState
from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.failures import PARTITION_EOF
from laminar_dagster.sources.kafka.librdkafka import Addresses, Library, MessageFields, Numbers
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted, empty_batch
from laminar_dagster.sources.kafka.troubles import ASK_MILLISECONDS, Troubles, next_offset

_log = logging.getLogger(__name__)

# How long more messages are waited for when some are there.
_LINGER_MILLISECONDS: Final = 10
# Arrow keeps values up to this length inside their view.
_INLINE: Final = 12
# Views count from the beginning of their buffer in 31 bits.
_REGION: Final = 1 << 30
_NONE: Final = np.zeros(0, np.uint64)
# By the numbers of syslog.
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

    def __init__(self, settings: Mapping[str, str], wanted: Wanted, source_id: str) -> None:
        """Prepare; connects to nothing yet.

        Args:
            settings: Of librdkafka.
            wanted: Keys at most; timestamps and headers take a call for each message.
            source_id: For errors.

        Raises:
            NotUsable: It does not work on this machine.
            ValueError: Something is wanted that this cannot give.
        """
        if wanted.timestamps or wanted.headers:
            raise ValueError("timestamps and headers are for the portable fetcher")
        self._library: Library = librdkafka.library()
        self._settings = consumer_settings(settings) | {"log.queue": "true"}
        self._wanted = wanted
        self._source_id = source_id
        self._client: _Client | None = None

    def open(self, topic: str, partition: int, start: int) -> None:
        """Begin to fetch at an offset.

        Raises:
            InvalidConfig: librdkafka refuses the settings.
            InvalidState: It is open.
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
        self._client = _Client(self._library, handle, topic, partition)
        self._troubles = Troubles(self._source_id, topic, partition)
        self._place = topic, partition
        self._position = self._reached = start
        self.resume()

    def fetch(self, most: int, timeout: float) -> MessageBatch:
        """Up to ``most`` messages; none if none came in time.

        Raises:
            AuthFailed, RetentionExpired, SourceUnavailable: The read cannot go on.
        """
        began = time.monotonic()
        client = self._opened()
        try:
            batch = self._batch(client.take(most, timeout))
        finally:
            client.give_back()
        self._listen(client)
        return replace(batch, fetch_seconds=time.monotonic() - began)

    def position(self) -> int:
        """The next offset that would be read."""
        return self._position

    def reached(self) -> int:
        """How far the broker has been read, delivered or not."""
        return max(self._reached, self._position)

    def trouble(self) -> str:
        """What librdkafka complained about last."""
        return self._troubles.last

    def pause(self) -> None:
        """Fetch nothing, and let go of what was fetched ahead."""
        self._require(self._opened().unassign())

    def resume(self) -> None:
        """Go on at the position."""
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

    def _batch(self, messages: Addresses) -> MessageBatch:
        if not len(messages):
            return empty_batch(self._wanted)
        fields = librdkafka.read_messages(messages)
        troubles = np.flatnonzero(fields.errors)
        for place in troubles.tolist():
            self._note(messages, fields, place)
        if len(troubles):
            good = fields.errors == 0
            if not good.any():
                return empty_batch(self._wanted)
            fields = MessageFields(
                errors=fields.errors[good],
                offsets=fields.offsets[good],
                values=fields.values[good],
                value_bytes=fields.value_bytes[good],
                keys=fields.keys[good],
                key_bytes=fields.key_bytes[good],
            )
        self._position = max(self._position, int(fields.offsets[-1]) + 1)
        return MessageBatch(
            offsets=fields.offsets,
            values=copy_values(fields.values, fields.value_bytes),
            keys=copy_values(fields.keys, fields.key_bytes) if self._wanted.keys else None,
        )

    def _note(self, messages: Addresses, fields: MessageFields, place: int) -> None:
        """Take in what is not a message: an error, or the end of the partition."""
        code, offset = int(fields.errors[place]), int(fields.offsets[place])
        if code == PARTITION_EOF:
            self._position = max(self._position, offset)
            return
        reason = self._library.text_of("message_errstr", int(messages[place]))
        self._troubles.note(code, reason, self._position, self._opened().watermarks)

    def _listen(self, client: _Client) -> None:
        """Take in what librdkafka says besides messages."""
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
    """A consumer of the C API with one partition, and what has to be freed with it."""

    def __init__(self, library: Library, handle: int, topic: str, partition: int) -> None:
        self._library, self._call = library, library.call
        self._handle = handle
        self._topic, self._partition = topic.encode(), partition
        self._main = self._call["queue_get_main"](handle)
        self._messages = self._call["queue_get_consumer"](handle)
        # What librdkafka has handed out is in one of these, whenever an interrupt may come.
        self._pointers = _NONE
        self._leaving: Iterator[int] = iter(())
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
        """Fetch nothing; returns as `assign` does."""
        code: int = self._call["assign"](self._handle, None)
        return code

    def take(self, most: int, timeout: float) -> Addresses:
        """Pointers to messages, good until they are given back; errors are among them."""
        self._pointers = np.zeros(most, np.uint64)
        into = self._pointers.ctypes.data
        # A call returns when it has all it asked for or when the time is over. So the first one
        # waits for a single message, and the second is short.
        consume = self._call["consume_batch_queue"]
        count = max(0, consume(self._messages, round(timeout * 1000), into, 1))
        if count and most > 1:
            count += max(0, consume(self._messages, _LINGER_MILLISECONDS, into + 8, most - 1))
        return self._pointers[:count]

    def give_back(self) -> None:
        """Let go of the messages that were taken. A client that is short of one never ends."""
        self._library.destroy_messages(self._leaving)
        leaving = iter(self._pointers[self._pointers != 0].tolist())
        # No call is between these two, so nothing can come between them.
        self._leaving = leaving
        self._pointers = _NONE
        self._library.destroy_messages(self._leaving)

    def next_event(self) -> int | None:
        """Something that is not a message; the caller's to destroy."""
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
        # Each of these is done even if an interrupt comes during another.
        with contextlib.ExitStack() as last_first:
            last_first.callback(
                self._call["destroy_flags"], self._handle, librdkafka.NO_CONSUMER_CLOSE
            )
            last_first.callback(self._call["queue_destroy"], self._main)
            last_first.callback(self._call["queue_destroy"], self._messages)
            last_first.callback(self.unassign)
            last_first.callback(self.give_back)


def copy_values(addresses: Addresses, lengths: Numbers) -> pa.BinaryArray:
    """Copy stretches of memory into one array; the address 0 is null."""
    count = len(addresses)
    present = addresses != 0
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = np.where(present, lengths, 0)
    buffers: list[pa.Buffer] = []
    is_long = present & (lengths > _INLINE)
    if is_long.any():
        buffers = _point_outside(views, is_long, addresses, lengths)
    is_short = present & (lengths > 0) & ~is_long
    if is_short.any():
        _put_inside(views, np.flatnonzero(is_short), addresses[is_short], lengths[is_short])
    validity = None if present.all() else pa.array(present).buffers()[1]
    viewed = pa.Array.from_buffers(
        pa.binary_view(), count, [validity, pa.py_buffer(views), *buffers]
    )
    return viewed.cast(pa.binary())


def _point_outside(
    views: npt.NDArray[np.int32],
    rows: npt.NDArray[np.bool_],
    addresses: Addresses,
    lengths: Numbers,
) -> list[pa.Buffer]:
    """Point the views of long values at them. Of the buffers, only these values may be read."""
    if not rows.all():
        addresses, lengths = addresses[rows], lengths[rows]
    lowest, longest = int(addresses.min()), int(lengths.max())
    if int(addresses.max()) - lowest <= _REGION:
        views[rows, 3] = addresses - np.uint64(lowest)
        return [pa.foreign_buffer(lowest, _REGION + longest)]
    # They come from parts of the heap that are far from each other.
    bases, numbers = np.unique(addresses // np.uint64(_REGION), return_inverse=True)
    views[rows, 2] = numbers
    views[rows, 3] = addresses % np.uint64(_REGION)
    return [pa.foreign_buffer(int(base) * _REGION, _REGION + longest) for base in bases]


def _put_inside(
    views: npt.NDArray[np.int32], rows: Numbers, addresses: Addresses, lengths: Numbers
) -> None:
    """Copy short values into their views, byte by byte, so that none beyond their end is read."""
    lowest = int(addresses.min())
    span = int(addresses.max()) - lowest + _INLINE
    memory = np.frombuffer(pa.foreign_buffer(lowest, span), np.uint8)
    starts = (addresses - np.uint64(lowest)).astype(np.int64)
    inside = views.view(np.uint8)
    for place in range(int(lengths.max())):
        reaching = lengths > place
        inside[rows[reaching], 4 + place] = memory[starts[reaching] + place]

"""Calls the C API of the librdkafka that confluent-kafka has loaded, with ctypes.

Only functions and one struct of ``rdkafka.h`` are used; that header is kept compatible within a
major version. The layout of the struct is not trusted: `library` tests it before the first use.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa

PRODUCER: Final = 0
CONSUMER: Final = 1
EVENT_DELIVERY: Final = 0x1
EVENT_LOG: Final = 0x4
EVENT_ERROR: Final = 0x8
EVENT_STATS: Final = 0x40
# Closing a consumer leaves its group, which was never joined: skip it.
NO_CONSUMER_CLOSE: Final = 0x8

_MAJOR_VERSION: Final = 2
_TEXT_BYTES: Final = 512
_COPY_PAYLOAD: Final = 0x2
_PURGE_EVERYTHING: Final = 0x3
_PURGED: Final = -152
_NO_OFFSET: Final = -1001
_PROBE_MILLISECONDS: Final = 10_000
# Values and keys.
_PROBES: Final[tuple[tuple[bytes | None, bytes | None], ...]] = (
    (b"a value of the probe", b"a key"),
    (None, b"the key of a tombstone"),
    (b"", None),
)

# Where the members of rd_kafka_message_t begin, in words of eight bytes.
_MESSAGE_BYTES: Final = 72
_ERROR, _TOPIC, _PARTITION, _VALUE, _VALUE_BYTES, _KEY, _KEY_BYTES, _OFFSET, _PRIVATE = range(9)

_address = ctypes.c_void_p
_text = ctypes.c_char_p
_int = ctypes.c_int
_size = ctypes.c_size_t
_number_out = ctypes.POINTER(ctypes.c_int64)
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    # Result, then arguments.
    "version": (_int,),
    "err2str": (_text, _int),
    "conf_new": (_address,),
    "conf_set": (_int, _address, _text, _text, _text, _size),
    "conf_set_events": (None, _address, _int),
    "conf_destroy": (None, _address),
    "new": (_address, _int, _address, _text, _size),
    "destroy_flags": (None, _address, _int),
    "set_log_queue": (_int, _address, _address),
    "queue_get_main": (_address, _address),
    "queue_get_consumer": (_address, _address),
    "queue_poll": (_address, _address, _int),
    "queue_destroy": (None, _address),
    "event_type": (_int, _address),
    "event_error": (_int, _address),
    "event_error_string": (_text, _address),
    "event_stats": (_text, _address),
    "event_log": (
        _int,
        _address,
        ctypes.POINTER(_text),
        ctypes.POINTER(_text),
        ctypes.POINTER(_int),
    ),
    "event_message_array": (_size, _address, _address, _size),
    "event_destroy": (None, _address),
    "topic_partition_list_new": (_address, _int),
    "topic_partition_list_add": (_address, _address, _text, ctypes.c_int32),
    "topic_partition_list_set_offset": (_int, _address, _text, ctypes.c_int32, ctypes.c_int64),
    "topic_partition_list_destroy": (None, _address),
    "assign": (_int, _address, _address),
    "query_watermark_offsets": (
        _int,
        _address,
        _text,
        ctypes.c_int32,
        _number_out,
        _number_out,
        _int,
    ),
    "consume_batch_queue": (ctypes.c_ssize_t, _address, _int, _address, _size),
    "message_errstr": (_text, _address),
    "message_destroy": (None, _address),
    "message_timestamp": (ctypes.c_int64, _address, _address),
    "message_headers": (_int, _address, _address),
    "header_get_all": (_int, _address, _size, _address, _address, _address),
    "topic_new": (_address, _address, _text, _address),
    "topic_destroy": (None, _address),
    "produce": (
        _int,
        _address,
        ctypes.c_int32,
        _int,
        _text,
        _size,
        _text,
        _size,
        _address,
    ),
    "purge": (_int, _address, _int),
}

Addresses = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


class NotUsable(Exception):
    """librdkafka's C API cannot be used on this machine; the text says why."""


class RefusedSettings(Exception):
    """librdkafka refuses the settings; the text says which."""


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The members of many ``rd_kafka_message_t``, copied.

    Attributes:
        errors: Error codes; 0 for a message.
        values: Addresses; 0 for a null value.
        keys: Addresses; 0 for a null key.
    """

    errors: npt.NDArray[np.int32]
    offsets: Numbers
    values: Addresses
    value_bytes: Numbers
    keys: Addresses
    key_bytes: Numbers


class Library:
    """The functions of librdkafka by their names without ``rd_kafka_``."""

    def __init__(self, file: str) -> None:
        """Bind the functions of a library, or of the libraries it depends on.

        Raises:
            NotUsable: A function is missing.
        """
        self.call: dict[str, Callable[..., Any]] = {}
        try:
            library = ctypes.CDLL(file)
            for name, (result, *arguments) in _SIGNATURES.items():
                function = library[f"rd_kafka_{name}"]
                function.restype, function.argtypes = result, arguments
                self.call[name] = function
            # ``PyDLL`` keeps the interpreter's lock, whose release is a third of a call's cost.
            # Destroying is short, never waits and never calls back.
            self._destroy = ctypes.PyDLL(file)["rd_kafka_message_destroy"]
            self._destroy.restype, self._destroy.argtypes = None, [_address]
        except (OSError, AttributeError) as error:
            raise NotUsable(f"librdkafka cannot be reached: {error}") from error

    def destroy_messages(self, messages: Iterator[int]) -> None:
        """Give messages back to librdkafka; nothing of them may be read afterwards.

        The loop runs no Python code, so an interrupt comes before the first or after the last.
        """
        deque(map(self._destroy, messages), maxlen=0)

    def address(self, name: str) -> int:
        """The address of a function, for native code that calls it."""
        return int(ctypes.cast(self.call[name], _address).value or 0)  # type: ignore[arg-type]

    def new_client(self, kind: int, settings: Mapping[str, str], events: int) -> int:
        """Create a producer or consumer without callbacks.

        Raises:
            RefusedSettings: A setting is invalid.
        """
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = self.call["conf_new"]()
        for name, value in settings.items():
            if self.call["conf_set"](conf, name.encode(), value.encode(), text, len(text)):
                self.call["conf_destroy"](conf)
                raise RefusedSettings(_decoded(text.value))
        self.call["conf_set_events"](conf, events)
        client: int | None = self.call["new"](kind, conf, text, len(text))
        if client is None:
            self.call["conf_destroy"](conf)
            raise RefusedSettings(_decoded(text.value))
        return client

    def text_of(self, name: str, *arguments: Any) -> str:
        """The result of a function that returns text."""
        return _decoded(self.call[name](*arguments) or b"")

    def log_line(self, event: int) -> tuple[str, int]:
        """The text of a log event, and its syslog level."""
        facility, line, level = _text(), _text(), _int()
        out = (ctypes.byref(each) for each in (facility, line, level))
        self.call["event_log"](event, *out)
        return f"{_decoded(facility.value or b'')}: {_decoded(line.value or b'')}", level.value


def read_messages(messages: Addresses) -> MessageFields:
    """Copy the members of messages, all at once, but not what they point to."""
    lowest = int(messages.min())
    words = memory(lowest, int(messages.max()) - lowest + _MESSAGE_BYTES)
    first = ((messages - np.uint64(lowest)) >> np.uint64(3)).astype(np.int64)
    return MessageFields(
        # Four bytes of the code, and four of padding.
        errors=words[first + _ERROR].astype(np.int32),
        offsets=words[first + _OFFSET],
        values=words[first + _VALUE].view(np.uint64),
        value_bytes=words[first + _VALUE_BYTES],
        keys=words[first + _KEY].view(np.uint64),
        key_bytes=words[first + _KEY_BYTES],
    )


def error_of(message: int) -> tuple[int, int]:
    """The error code of a message, 0 for none, and its offset."""
    words = memory(message, _MESSAGE_BYTES)
    return int(words[_ERROR].astype(np.int32)), int(words[_OFFSET])


def memory(address: int, size: int) -> Numbers:
    """A view of the process's memory as words; the caller must know that it is mapped."""
    return np.frombuffer(pa.foreign_buffer(address, size), np.int64)


@functools.cache
def library() -> Library:
    """The librdkafka of this process, tested; the one that confluent-kafka uses.

    Raises:
        NotUsable: It cannot be found, is too old or too new, or its layout is not as expected.
    """
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise NotUsable("it takes a little-endian machine of 64 bits")
    # Symbols of the libraries that the extension module is linked with are found as well.
    loaded = Library(str(confluent_kafka.cimpl.__file__))
    version = loaded.call["version"]()
    if version != confluent_kafka.libversion()[1]:
        raise NotUsable("the librdkafka that was found is not the one confluent-kafka uses")
    if version >> 24 != _MAJOR_VERSION:
        raise NotUsable(f"it takes librdkafka {_MAJOR_VERSION}, and this is {version >> 24}")
    _probe(loaded)
    return loaded


def _probe(loaded: Library) -> None:
    """Test whether a message is laid out as expected.

    A producer without a broker takes messages and is told to purge them. It reports them back, with
    all their members set.

    Raises:
        NotUsable: The layout differs.
    """
    try:
        client = loaded.new_client(PRODUCER, {"log_level": "0"}, EVENT_DELIVERY)
    except RefusedSettings as error:
        raise NotUsable(f"librdkafka did not start: {error}") from error
    call = loaded.call
    topic = call["topic_new"](client, b"probe", None)
    queue = call["queue_get_main"](client)
    try:
        for opaque, (value, key) in enumerate(_PROBES, start=1):
            sizes = len(value or b""), len(key or b"")
            call["produce"](topic, 3, _COPY_PAYLOAD, value, sizes[0], key, sizes[1], opaque)
        call["purge"](client, _PURGE_EVERYTHING)
        seen: list[tuple[bytes | None, bytes | None]] = []
        while event := call["queue_poll"](queue, _PROBE_MILLISECONDS):
            try:
                seen += _dropped(loaded, event, topic, first=len(seen) + 1)
            finally:
                call["event_destroy"](event)
            if len(seen) >= len(_PROBES):
                break
    finally:
        call["queue_destroy"](queue)
        call["topic_destroy"](topic)
        call["destroy_flags"](client, 0)
    if seen != list(_PROBES):
        raise NotUsable("messages came back from librdkafka otherwise than they were given to it")


def _dropped(
    loaded: Library, event: int, topic: int, first: int
) -> list[tuple[bytes | None, bytes | None]]:
    """The values and keys of an event's messages.

    Raises:
        NotUsable: Any other member differs. Then no pointer was followed.
    """
    messages = np.zeros(len(_PROBES), np.uint64)
    count = loaded.call["event_message_array"](event, messages.ctypes.data, len(messages))
    if not count:
        return []
    found = read_messages(messages[:count])
    others = [memory(int(each), _MESSAGE_BYTES) for each in messages[:count]]
    expected = [
        (_PURGED, _NO_OFFSET, topic, 3, first + place, len(value or b""), len(key or b""))
        for place, (value, key) in enumerate(_PROBES[first - 1 : first - 1 + count])
    ]
    actual = [
        (
            int(found.errors[place]),
            int(found.offsets[place]),
            int(words[_TOPIC]),
            int(words[_PARTITION]) & 0xFFFFFFFF,
            int(words[_PRIVATE]),
            int(found.value_bytes[place]),
            int(found.key_bytes[place]),
        )
        for place, words in enumerate(others)
    ]
    if actual != expected:
        raise NotUsable("a message is not laid out in memory as expected")
    return [
        (
            _bytes_at(int(found.values[place]), int(found.value_bytes[place])),
            _bytes_at(int(found.keys[place]), int(found.key_bytes[place])),
        )
        for place in range(count)
    ]


def _bytes_at(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if address else None


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")

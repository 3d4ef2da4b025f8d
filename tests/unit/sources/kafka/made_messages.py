"""Messages as librdkafka lays them out, made by hand, and functions to read and destroy them."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from laminar_dagster.sources.kafka.compiled_gather import Calls

_NO_ENTRY = -156


class RawMessage(ctypes.Structure):
    """``rd_kafka_message_t``."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_bytes", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_bytes", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Made:
    """A message to make.

    Attributes:
        claimed: How long it says that its value is, if that is not true.
    """

    offset: int
    value: bytes | None = None
    key: bytes | None = None
    error: int = 0
    timestamp: int = -1
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    claimed: int | None = None


@dataclass
class MadeMessages:
    """Messages in memory of their own, and who was destroyed how often."""

    wanted: list[Made]
    destroyed: Counter[int] = field(default_factory=Counter)
    raw: list[RawMessage] = field(init=False)
    _kept: list[Any] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Lay them out."""
        self.raw = [self._laid_out(each) for each in self.wanted]
        self._by_address = {
            ctypes.addressof(raw): made for raw, made in zip(self.raw, self.wanted, strict=True)
        }

    @property
    def addresses(self) -> list[int]:
        """Of the messages."""
        return [ctypes.addressof(each) for each in self.raw]

    def calls(self) -> Calls:
        """Functions that do what librdkafka's do."""
        number, address = ctypes.c_int64, ctypes.c_void_p
        functions = (
            ctypes.CFUNCTYPE(None, address)(self._destroy),
            ctypes.CFUNCTYPE(number, address, address)(self._timestamp),
            ctypes.CFUNCTYPE(ctypes.c_int, address, address)(self._headers),
            ctypes.CFUNCTYPE(ctypes.c_int, address, ctypes.c_size_t, address, address, address)(
                self._header
            ),
        )
        self._kept.append(functions)
        return Calls(*(ctypes.cast(each, address).value for each in functions))

    def _laid_out(self, made: Made) -> RawMessage:
        value, key = self._bytes(made.value), self._bytes(made.key)
        size = len(made.value or b"") if made.claimed is None else made.claimed
        return RawMessage(
            *(made.error, 1, 0, value, size, key, len(made.key or b""), made.offset, None)
        )

    def _bytes(self, content: bytes | None) -> int | None:
        """An address with exactly so many bytes behind it."""
        if content is None:
            return None
        memory = (ctypes.c_uint8 * max(1, len(content)))(*content)
        self._kept.append(memory)
        return ctypes.addressof(memory)

    def _destroy(self, message: int) -> None:
        self.destroyed[message] += 1
        ctypes.memset(message, 0xFF, ctypes.sizeof(RawMessage))

    def _timestamp(self, message: int, kind: int) -> int:
        ctypes.c_int.from_address(kind).value = 1
        return self._by_address[message].timestamp

    def _headers(self, message: int, into: int) -> int:
        if not self._by_address[message].headers:
            return _NO_ENTRY
        ctypes.c_void_p.from_address(into).value = message
        return 0

    def _header(self, message: int, place: int, name: int, value: int, size: int) -> int:
        headers = self._by_address[message].headers
        if place >= len(headers):
            return _NO_ENTRY
        key, content = headers[place]
        ctypes.c_void_p.from_address(name).value = self._bytes(key + b"\0")
        ctypes.c_void_p.from_address(value).value = self._bytes(content)
        ctypes.c_size_t.from_address(size).value = len(content or b"")
        return 0

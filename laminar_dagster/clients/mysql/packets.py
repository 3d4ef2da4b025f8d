"""Many packets of a long answer at once, without an object for each.

A server that streams rows or events sends one packet for each. What has arrived is kept as it is,
and the places of the payloads in it are handed out with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pymysql

from laminar_dagster.clients.mysql.session import Session

# A payload of this length goes on in the next packet.
_LONGEST: Final = 2**24 - 1
_AT_ONCE: Final = 2**20
_HEADER: Final = 4
_FAILED: Final = 0xFF
_ENDED: Final = 0xFE
# An end is short; a row may begin with the same byte.
_LONGEST_END: Final = 9


@dataclass(frozen=True, slots=True)
class Packets:
    """Payloads that arrived together.

    Attributes:
        data: What they are in.
        starts: Where each begins.
        ends: And ends.
    """

    data: bytes
    starts: list[int]
    ends: list[int]


def stream(session: Session, *, at_once: int = _AT_ONCE) -> Iterator[Packets]:
    """The packets of an answer, up to the one that ends it, which is left out.

    Args:
        session: Who has asked, and has read nothing of the answer but what stands before.
        at_once: About how many bytes are handed out together.

    Raises:
        pymysql.Error: The server ends with an error, or the connection is lost.
    """
    arrived = _Arrived()
    while True:
        part = session.receive(_AT_ONCE)
        arrived.data += part
        arrived.find_packets()
        # A server that sends little has no more for now: what there is need not wait.
        if len(arrived.data) >= at_once or len(part) < _AT_ONCE // 16 or arrived.must_be_taken():
            yield from arrived.take()
        while arrived.is_long:
            yield arrived.take_long(session)
            if arrived.must_be_taken():
                yield from arrived.take()
        if arrived.is_over:
            return


class _Arrived:
    """What the server has sent and nobody has taken yet.

    Attributes:
        is_over: Whether the packet that ends the answer is among it.
        is_long: Whether the next payload goes on in another packet.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.is_over = self.is_long = False
        self._at = 0

    def find_packets(self) -> None:
        """Find those that are whole."""
        data, at, size = self.data, self._at, len(self.data)
        starts, ends = self.starts, self.ends
        while at + _HEADER <= size:
            length = int.from_bytes(data[at : at + 3], "little")
            start = at + _HEADER
            end = start + length
            if length == _LONGEST:
                self.is_long = True
                break
            if end > size:
                break
            first = data[start] if length else 0
            if first == _FAILED:
                raise failure_in(bytes(data[start:end]))
            if first == _ENDED and length < _LONGEST_END:
                self.is_over = True
                break
            starts.append(start)
            ends.append(end)
            at = end
        self._at = at

    def must_be_taken(self) -> bool:
        """Whether nothing can be added to those that were found."""
        return self.is_over or self.is_long

    def take(self) -> Iterator[Packets]:
        """Hand out those that were found, if there are any."""
        if self.starts:
            yield Packets(bytes(self.data[: self._at]), self.starts, self.ends)
            self.data = self.data[self._at :]
            self.starts, self.ends, self._at = [], [], 0

    def take_long(self, session: Session) -> Packets:
        """A payload of several packets, put together."""
        parts: list[bytes] = []
        length = _LONGEST
        while length == _LONGEST:
            self._await(session, _HEADER)
            length = int.from_bytes(self.data[:3], "little")
            self._await(session, _HEADER + length)
            parts.append(bytes(self.data[_HEADER : _HEADER + length]))
            del self.data[: _HEADER + length]
        self.is_long = False
        self.find_packets()
        whole = b"".join(parts)
        return Packets(whole, [0], [len(whole)])

    def _await(self, session: Session, size: int) -> None:
        while len(self.data) < size:
            self.data += session.receive(_AT_ONCE)


def failure_in(packet: bytes) -> pymysql.Error:
    """The error that a packet tells of."""
    (code,) = struct.unpack_from("<H", packet, 1)
    text = packet[3:].decode("utf-8", "replace")
    if text.startswith("#"):
        text = text[6:]
    return pymysql.err.OperationalError(code, text)

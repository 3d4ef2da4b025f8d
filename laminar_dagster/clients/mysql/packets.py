"""Reads many packets of a long response at once, without an object for each.

A server that streams rows or events sends one packet for each. Received bytes are kept as they
are, and yielded with the positions of the payloads in them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pymysql

from laminar_dagster.clients.mysql.session import Session

# A payload of this length continues in the next packet.
_LONGEST: Final = 2**24 - 1
_AT_ONCE: Final = 2**20
_HEADER: Final = 4
_FAILED: Final = 0xFF
_ENDED: Final = 0xFE
# An end-of-data packet is short; a row may begin with the same byte.
_LONGEST_END: Final = 9


@dataclass(frozen=True, slots=True)
class Packets:
    """Payloads that arrived together.

    Attributes:
        data: The received bytes.
        starts: Where each payload begins.
        ends: Where each payload ends.
    """

    data: bytes
    starts: list[int]
    ends: list[int]


def stream(session: Session, *, at_once: int = _AT_ONCE) -> Iterator[Packets]:
    """The packets of a response, without the one that ends it.

    Args:
        session: A session that has sent the request, and has read what precedes the packets.
        at_once: About how many bytes are yielded together.

    Raises:
        pymysql.Error: The server ends with an error, or the connection is lost.
    """
    arrived = _Arrived()
    while True:
        part = session.receive(_AT_ONCE)
        arrived.data += part
        arrived.find_packets()
        # A short read means that the server has no more for now: do not hold back what is there.
        if len(arrived.data) >= at_once or len(part) < _AT_ONCE // 16 or arrived.must_be_taken():
            yield from arrived.take()
        while arrived.is_long:
            yield arrived.take_long(session)
            if arrived.must_be_taken():
                yield from arrived.take()
        if arrived.is_over:
            return


class _Arrived:
    """Received bytes that were not yielded yet.

    Attributes:
        is_over: Whether they include the packet that ends the response.
        is_long: Whether the next payload continues in another packet.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.is_over = self.is_long = False
        self._at = 0

    def find_packets(self) -> None:
        """Find the packets that were received completely."""
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
        """Whether no further packet can be added to those that were found."""
        return self.is_over or self.is_long

    def take(self) -> Iterator[Packets]:
        """Yield the packets that were found, if any."""
        if self.starts:
            yield Packets(bytes(self.data[: self._at]), self.starts, self.ends)
            self.data = self.data[self._at :]
            self.starts, self.ends, self._at = [], [], 0

    def take_long(self, session: Session) -> Packets:
        """Join a payload that is split over several packets."""
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
    """Parse an error packet."""
    (code,) = struct.unpack_from("<H", packet, 1)
    text = packet[3:].decode("utf-8", "replace")
    if text.startswith("#"):
        text = text[6:]
    return pymysql.err.OperationalError(code, text)

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
    left, is_over = b"", False
    while not is_over:
        received, missing = [left], at_once - len(left)
        while missing > 0:
            part = session.receive(missing)
            received.append(part)
            missing -= len(part)
            if len(part) < _AT_ONCE // 16:
                # The server has no more for now: what there is need not wait.
                break
        data = b"".join(received)
        found, left, is_over = _split(session, data)
        if found.starts:
            yield found


def _split(session: Session, data: bytes) -> tuple[Packets, bytes, bool]:
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, len(data)
    while at + _HEADER <= size:
        length = int.from_bytes(data[at : at + 3], "little")
        start = at + _HEADER
        end = start + length
        if length == _LONGEST:
            if starts:
                # It is taken up anew, with nothing before it.
                break
            return _long_packet(session, data)
        if end > size:
            break
        first = data[start] if length else 0
        if first == _FAILED:
            raise failure_in(data[start:end])
        if first == _ENDED and length < _LONGEST_END:
            return Packets(data, starts, ends), b"", True
        starts.append(start)
        ends.append(end)
        at = end
    return Packets(data, starts, ends), data[at:], False


def _long_packet(session: Session, data: bytes) -> tuple[Packets, bytes, bool]:
    """A payload of several packets, put together."""
    parts: list[bytes] = []
    length = _LONGEST
    while length == _LONGEST:
        while len(data) < _HEADER:
            data += session.receive(_AT_ONCE)
        length = int.from_bytes(data[:3], "little")
        pieces, there = [data[_HEADER:]], len(data) - _HEADER
        while there < length:
            pieces.append(session.receive(max(_AT_ONCE, length - there)))
            there += len(pieces[-1])
        data = b"".join(pieces)
        parts.append(data[:length])
        data = data[length:]
    whole = b"".join(parts)
    return Packets(whole, [0], [len(whole)]), data, False


def failure_in(packet: bytes) -> pymysql.Error:
    """The error that a packet tells of."""
    (code,) = struct.unpack_from("<H", packet, 1)
    text = packet[3:].decode("utf-8", "replace")
    if text.startswith("#"):
        text = text[6:]
    return pymysql.err.OperationalError(code, text)

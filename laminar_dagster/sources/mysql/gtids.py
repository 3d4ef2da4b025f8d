"""Sets of GTIDs: the transactions up to a place in the log.

MariaDB states the last GTID of each domain, MySQL intervals of all GTIDs. They are recorded to help
find the same place on another server; reading goes by file and position.
"""

from __future__ import annotations

import uuid
from typing import Protocol


class GtidSet(Protocol):
    """A set of GTIDs."""

    def add(self, gtid: str) -> None:
        """Add one GTID."""
        ...

    def __str__(self) -> str:
        """The form that the server uses."""
        ...


class MariadbGtids:
    """The last transaction of each domain: ``0-1-270,1-2-5``."""

    def __init__(self, text: str) -> None:
        """Parse the server's ``gtid_binlog_pos``."""
        self._last: dict[int, str] = {}
        for each in filter(None, text.split(",")):
            self.add(each)

    def add(self, gtid: str) -> None:
        """Add one GTID, the last of its domain."""
        self._last[int(gtid.partition("-")[0])] = gtid.strip()

    def __str__(self) -> str:
        """The GTIDs, sorted by domain."""
        return ",".join(self._last[domain] for domain in sorted(self._last))


class MysqlGtids:
    """Intervals of numbers by server, and by tag: ``uuid:1-5:7,uuid:1-3:tag:1-2``."""

    def __init__(self, text: str) -> None:
        """Parse the server's ``gtid_executed``."""
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for each in filter(None, (part.strip() for part in text.split(","))):
            server, *parts = each.lower().split(":")
            owner = server
            for part in parts:
                if not part[0].isdigit():
                    # The numbers after a tag are the tag's; those without a tag come first.
                    owner = f"{server}:{part}"
                    continue
                first, _, last = part.partition("-")
                self._intervals.setdefault(owner, []).append((int(first), int(last or first)))

    def add(self, gtid: str) -> None:
        """Add one GTID, most often the next of its server."""
        owner, _, number = gtid.lower().rpartition(":")
        found, value = self._intervals.setdefault(owner, []), int(number)
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
            return
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*found, (value, value)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        self._intervals[owner] = joined

    def __str__(self) -> str:
        """The intervals, sorted by server and tag."""
        shown: dict[str, list[str]] = {}
        for owner in sorted(self._intervals):
            server, _, tag = owner.partition(":")
            parts = [f"{a}-{b}" if a < b else str(a) for a, b in self._intervals[owner]]
            shown.setdefault(server, [server]).extend([tag, *parts] if tag else parts)
        return ",".join(":".join(each) for each in shown.values())


def gtids_of(text: str | None, *, is_mariadb: bool) -> GtidSet | None:
    """Parse the GTIDs of a position; None where the server writes none."""
    if text is None:
        return None
    return MariadbGtids(text) if is_mariadb else MysqlGtids(text)


def mariadb_gtid(body: bytes, server_id: int) -> str:
    """The GTID of a transaction, from a MariaDB GTID event."""
    number, domain = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little")
    return f"{domain}-{server_id}-{number}"


def mysql_gtid(body: bytes) -> str:
    """The GTID of a transaction, from a MySQL GTID event."""
    return f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}"


def mysql_tagged_gtid(body: bytes) -> str:
    """The GTID of a transaction, from a MySQL tagged GTID event.

    The body is a list of fields, each after its number: flags, the server's UUID, the number, the
    tag.
    """
    numbers = _Numbers(body)
    # Skip version, size, the last field that must be known, and the flags.
    numbers.take(5)
    _, *server = numbers.take(17)
    _, doubled, _, length = numbers.take(4)
    tag = body[numbers.at : numbers.at + length].decode("ascii")
    # Signed numbers are shifted left by one, for the sign.
    return f"{uuid.UUID(bytes=bytes(server))}:{tag}:{doubled >> 1}"


class _Numbers:
    """Variable-length integers: trailing ones of the first byte count the additional bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> list[int]:
        found = []
        for _ in range(count):
            first = self._data[self.at]
            size = 1 + (~first & (first + 1)).bit_length() - 1
            value = int.from_bytes(self._data[self.at : self.at + size], "little")
            found.append(value >> size)
            self.at += size
        return found

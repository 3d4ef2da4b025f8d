"""The transactions up to a place in the log, by their global ids.

MariaDB writes the last one of each domain, MySQL every one, in intervals. They are recorded for
those who look for the same place on another server; reading goes by file and position.
"""

from __future__ import annotations

import uuid
from typing import Protocol


class GtidSet(Protocol):
    """Ids of transactions."""

    def add(self, gtid: str) -> None:
        """One more."""
        ...

    def __str__(self) -> str:
        """As the server writes them."""
        ...


class MariadbGtids:
    """The last transaction of each domain: ``0-1-270,1-2-5``."""

    def __init__(self, text: str) -> None:
        """Read what the server calls ``gtid_binlog_pos``."""
        self._last: dict[int, str] = {}
        for each in filter(None, text.split(",")):
            self.add(each)

    def add(self, gtid: str) -> None:
        """One more, the last of its domain."""
        self._last[int(gtid.partition("-")[0])] = gtid.strip()

    def __str__(self) -> str:
        """By domain."""
        return ",".join(self._last[domain] for domain in sorted(self._last))


class MysqlGtids:
    """Intervals of numbers by server: ``uuid:1-5:7,uuid:1-3``."""

    def __init__(self, text: str) -> None:
        """Read what the server calls ``gtid_executed``."""
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        for each in filter(None, (part.strip() for part in text.split(","))):
            server, *parts = each.split(":")
            for part in parts:
                first, _, last = part.partition("-")
                self._intervals.setdefault(server.lower(), []).append(
                    (int(first), int(last or first))
                )

    def add(self, gtid: str) -> None:
        """One more, most often the next of its server."""
        server, _, number = gtid.partition(":")
        found, value = self._intervals.setdefault(server.lower(), []), int(number)
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
            return
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*found, (value, value)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        self._intervals[server.lower()] = joined

    def __str__(self) -> str:
        """By server."""
        shown = []
        for server in sorted(self._intervals):
            parts = [f"{a}-{b}" if a < b else str(a) for a, b in self._intervals[server]]
            shown.append(":".join([server, *parts]))
        return ",".join(shown)


def gtids_of(text: str | None, *, is_mariadb: bool) -> GtidSet | None:
    """Those of a position; None where the server writes none."""
    if text is None:
        return None
    return MariadbGtids(text) if is_mariadb else MysqlGtids(text)


def mariadb_gtid(body: bytes, server_id: int) -> str:
    """The id of a transaction, from the event that begins it."""
    number, domain = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little")
    return f"{domain}-{server_id}-{number}"


def mysql_gtid(body: bytes) -> str:
    """The id of a transaction, from the event that begins it."""
    return f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}"

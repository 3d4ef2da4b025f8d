"""The files of a server's binary log: their sizes, and whether it is the same log as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

import pymysql

from laminar_dagster.clients.mysql.binlog import CANNOT_BEGIN, FIRST_EVENT, dump
from laminar_dagster.clients.mysql.errors import (
    code_of,
    describe,
    describe_connecting,
    is_passing,
    is_refusal,
    is_refusal_to_connect,
)
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.errors import (
    AuthFailed,
    LaminarError,
    RetentionExpired,
    ServiceFailed,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import LogMark
from laminar_dagster.sources.mysql.catalogue import Facts
from laminar_dagster.sources.mysql.events import Event, events

_APPLICATION: Final = "laminar"
_WITHOUT_LOG: Final = 1381
# Silence for this long counts as a lost connection; a server that reads its own disk may be slow.
_PATIENCE: Final = 120.0
# Times that the server sends are in the session's time zone: make it UTC.
_SESSION: Final = (
    "SET SESSION time_zone = '+00:00', lc_messages = 'en_US', sql_mode = '',"
    " net_write_timeout = 600, sql_select_limit = DEFAULT"
)


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The binary log of a server. Every call opens a session of its own."""

    source_id: SourceId
    server: Server

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session whose MySQL errors are translated to a source's errors.

        Raises:
            SourceUnavailable, AuthFailed: It cannot be opened, or is lost.
        """
        try:
            found = self.server.connect(f"{_APPLICATION} {self.source_id}")
        except pymysql.Error as error:
            text = describe_connecting(error, self.server)
            raise self._failure(error, text, is_refusal_to_connect(error)) from None
        found.limit(_PATIENCE)
        with closing(_Quietly(found)):
            try:
                found.run(_SESSION)
                yield found
            except pymysql.Error as error:
                text = describe(error, self.server)
                raise self._failure(error, text, is_refusal(error)) from None

    def _failure(self, error: pymysql.Error, text: str, is_refused: bool) -> LaminarError:
        if is_refused:
            return AuthFailed(f"the MySQL server of source {self.source_id}", text)
        if is_passing(error):
            return SourceUnavailable(self.source_id, text)
        return ServiceFailed(f"the MySQL server of source {self.source_id}", text)

    @contextmanager
    def events(self, file: str, position: int) -> Iterator[Iterator[Event]]:
        """The events from a position to the present end of the log.

        Raises:
            SourceReplaced: No event begins at the position.
            SourceUnavailable, AuthFailed: The log cannot be read.
        """
        with self.session() as session:
            try:
                yield events(dump(session, file, position), file, position)
            except pymysql.Error as error:
                if code_of(error) != CANNOT_BEGIN:
                    raise
                text = describe(error, self.server)
                raise SourceReplaced(self.source_id, f"{file}:{position}", text) from None

    def mark_at(self, file: str, start: int = FIRST_EVENT) -> LogMark | None:
        """The mark of the event at a place, by default a file's first; None without an event."""
        with self.events(file, start) as found:
            event = next(found, None)
            if event is None or (event.file, event.start) != (file, start):
                return None
            return LogMark(binlog_file=file, start=start, checksum=event.mark)


class _Quietly:
    """Hangs up without a farewell: a server that still sends would not read it."""

    def __init__(self, session: Session) -> None:
        self.close: Callable[[], None] = session.hang_up


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The log files that a server has, in order, with their sizes."""

    source_id: SourceId
    sizes: dict[str, int]

    @property
    def first(self) -> str:
        """The oldest file that is not purged."""
        return next(iter(self.sizes))

    @property
    def end(self) -> tuple[str, int]:
        """The present end of the log."""
        last = next(reversed(self.sizes))
        return last, self.sizes[last]

    def require(self, file: str, position: int) -> None:
        """Check that the log still has a position.

        Raises:
            RetentionExpired: The file was purged.
            SourceReplaced: There is no such file, or it is shorter.
        """
        place = f"{file}:{position}"
        if file in self.sizes:
            if position > self.sizes[file]:
                found = f"a log that ends at {file}:{self.sizes[file]}"
                raise SourceReplaced(self.source_id, f"a log that holds {place}", found)
            return
        earliest = f"{self.first}:{FIRST_EVENT}"
        if number_of(file) < number_of(self.first) and base_of(file) == base_of(self.first):
            raise RetentionExpired(self.source_id, place, earliest)
        shown = ":".join(map(str, self.end))
        found = f"a log from {earliest} to {shown}: it was reset, or is of another server"
        raise SourceReplaced(self.source_id, f"a log that holds {place}", found)

    def bytes_from(self, file: str, position: int) -> int:
        """How many bytes of log follow a position."""
        number = number_of(file)
        behind = sum(size for name, size in self.sizes.items() if number_of(name) > number)
        return max(0, self.sizes.get(file, position) - position) + behind

    @property
    def total(self) -> int:
        """The size of all files."""
        return sum(self.sizes.values())


def files_of(session: Session, source_id: SourceId) -> LogFiles:
    """List the files of the log.

    Raises:
        pymysql.Error: The account is not allowed to.
    """
    try:
        rows = session.run("SHOW BINARY LOGS").rows
    except pymysql.Error as error:
        if code_of(error) == _WITHOUT_LOG:
            raise SourceReplaced(source_id, "a binary log", "a server that keeps none") from None
        raise
    return LogFiles(source_id, {str(row[0]): int(row[1]) for row in rows})


def end_of(session: Session, facts: Facts) -> tuple[str, int]:
    """The present end of the log, which is always between two transactions."""
    version = facts.variables.get("version", "0")
    is_new = not facts.is_mariadb and tuple(map(int, version.split("-")[0].split(".")[:2])) >= (
        8,
        2,
    )
    rows = session.run("SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS").rows
    return str(rows[0][0]), int(rows[0][1])


def number_of(file: str) -> int:
    """The number at the end of a file's name, which may have more than six digits."""
    return int(file.rpartition(".")[2])


def base_of(file: str) -> str:
    """A log file's name without its number."""
    return file.rpartition(".")[0]

"""What is read of a log, where its server died or stopped sending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import Answer
from laminar_dagster.core.errors import SourceReplaced, SourceUnavailable
from laminar_dagster.core.offsets import MysqlPosition, SourceRange
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.mysql import reader as reader_module
from laminar_dagster.sources.mysql.events import Event, Kind
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.reader import MysqlSplitReader
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.sources.mysql.hand_made_log import ORDERS, SCHEMA, SOURCE, HandMadeLog


@dataclass
class FakeLog:
    """A server that has a log made by hand.

    Attributes:
        sends: How many events it sends, for each time it is asked; then all of them.
    """

    log: HandMadeLog
    sends: list[int] = field(default_factory=list)
    asked: int = 0

    @contextmanager
    def session(self) -> Iterator[FakeLog]:
        yield self

    def run(self, statement: str, values: Sequence[object] = ()) -> Answer:
        if "COLLATIONS" in statement:
            return Answer(((45, "utf8mb4"),), 1, 0)
        if "BINARY LOGS" in statement:
            ends = {each.file: each.end for each in self.log.events}
            return Answer(tuple(ends.items()), len(ends), 0)
        return Answer((("version", "9.7.0"), ("lower_case_table_names", "0")), 2, 0)

    @contextmanager
    def events(self, file: str, position: int) -> Iterator[Iterator[Event]]:
        self.asked += 1
        found = self.log.events
        if self.sends:
            found = found[: self.sends.pop(0)]
        yield (each for each in found if (each.file, each.start) >= (file, position))


def read(
    fake: FakeLog, end: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[int]]:
    """The keys of each chunk, from the first event up to a place."""
    monkeypatch.setattr(reader_module, "ServerLog", lambda *_: fake)
    first = fake.log.events[0]
    start = MysqlPosition(binlog_file=first.file, binlog_position=first.start)
    options = MysqlCdcOptions(server=Server("host", "shop", "user"), tables=(ORDERS,))
    keeper = StoredSnapshots(MemoryStore(), SOURCE)
    reader = MysqlSplitReader(SOURCE, SCHEMA, options, keeper)
    last = MysqlPosition(binlog_file=end[0], binlog_position=end[1])
    for chunk in reader.read(SourceRange(start=start, end=last)):
        yield chunk.rows.column("id").to_pylist()


def keys(fake: FakeLog, end: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return [key for chunk in read(fake, end, monkeypatch) for key in chunk]


# --- a server that died --------------------------------------------------------------------------


@pytest.mark.parametrize("is_mariadb", [False, True])
def test_a_transaction_without_an_end_is_read_by_nobody(
    monkeypatch: pytest.MonkeyPatch, is_mariadb: bool
) -> None:
    log = HandMadeLog().transaction(1)
    if is_mariadb:
        log.add(Kind.MARIADB_GTID, bytes(13))
    else:
        log.query("BEGIN")
    log.rows(666, 667).new_file().transaction(2)
    found = log.scan()
    assert (found.file, found.position) == log.place
    assert found.changes == 2
    assert keys(FakeLog(log), log.place, monkeypatch) == [1, 2]


def test_files_that_nobody_ended_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    log = HandMadeLog().query("BEGIN").rows(666).new_file().transaction(1).transaction(2)
    log.query("BEGIN").rows(667).query("SAVEPOINT s").rows(668).new_file().new_file()
    end = log.file, 4
    assert keys(FakeLog(log), end, monkeypatch) == [1, 2]


def test_a_large_transaction_is_not_held_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file that is not the last one it could be without an end, which is found before."""
    monkeypatch.setattr(reader_module, "_CHUNK_EVENTS", 2)
    log = HandMadeLog().query("BEGIN").rows(1).rows(2).rows(3).rows(4).rows(5)
    log.add(Kind.XID, bytes(8)).query("BEGIN").rows(666).rows(667).new_file().transaction(6)
    fake = FakeLog(log)
    chunks = list(read(fake, log.place, monkeypatch))
    assert chunks == [[1, 2], [3, 4], [5], [6]]
    assert fake.asked == 2


def test_within_a_file_the_log_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = HandMadeLog().transaction(1).transaction(2)
    fake = FakeLog(log)
    assert keys(fake, log.place, monkeypatch) == [1, 2]
    assert fake.asked == 1


# --- a server that stops sending -----------------------------------------------------------------


@pytest.mark.parametrize("sends", [[0], [3], [99, 0], [99, 3], [99, 4]])
def test_a_log_that_ends_early_is_not_taken_for_the_whole(
    monkeypatch: pytest.MonkeyPatch, sends: list[int]
) -> None:
    """A dump whose session got KILL QUERY ends as any other does."""
    log = HandMadeLog().transaction(1).transaction(2)
    ends = (log.file, log.position), (log.new_file().file, 4)
    for end in ends:
        given = sends if end is ends[1] else sends[-1:]
        with pytest.raises(SourceUnavailable, match=r"b\.000001:"):
            keys(FakeLog(log, [*given]), end, monkeypatch)
        assert keys(FakeLog(log), end, monkeypatch) == [1, 2]


def test_a_log_that_is_shorter_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log = HandMadeLog().transaction(1)
    with pytest.raises(SourceReplaced, match="a log that holds"):
        keys(FakeLog(log), (log.file, log.position + 1), monkeypatch)
    with pytest.raises(SourceReplaced, match="a log that holds"):
        keys(FakeLog(log), ("b.000002", 4), monkeypatch)


def test_a_log_whose_events_end_elsewhere_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log = HandMadeLog().transaction(1)
    within = (log.file, log.position - 5)
    with pytest.raises(SourceReplaced, match="an event ends at"):
        keys(FakeLog(log), within, monkeypatch)
    log.new_file()
    with pytest.raises(SourceReplaced, match="an event ends at"):
        keys(FakeLog(log), within, monkeypatch)

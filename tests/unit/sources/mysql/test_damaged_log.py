"""A log without checksums that is damaged: an error with a name and a place, and an end."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.clients.mysql.packets import Packets
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import DecodeFailed, LaminarError
from laminar_dagster.core.offsets import MysqlPosition, SourceRange
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.mysql import reader as reader_module
from laminar_dagster.sources.mysql.change_rows import ChangeDecoder
from laminar_dagster.sources.mysql.events import Event, Kind, events
from laminar_dagster.sources.mysql.gtids import MysqlGtids
from laminar_dagster.sources.mysql.log_scan import LogScanner, Scanned
from laminar_dagster.sources.mysql.logged_tables import LoggedTables
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.reader import MysqlSplitReader
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.sources.mysql.hand_made_log import NO_LIMIT, SOURCE, query_body
from tests.unit.sources.mysql.test_reader import FakeLog
from tests.unit.sources.mysql.test_rows import (
    BLOB,
    CHARSETS,
    DECIMAL,
    LONG,
    SCHEMA,
    STRING,
    VARCHAR,
    described,
    row,
)

FILE = "b.000001"
ORDERS = ("shop", "orders")
OTHERS = described(
    [("id", LONG, b""), ("doc", BLOB, b"\2"), ("kind", STRING, b"\xf7\1"), ("at", 18, b"\6")]
).replace(b"orders", b"others")
TABLE_ID = struct.pack("<IHH", 9, 0, 1)


def _event(kind: int, body: bytes, at: int) -> bytes:
    size = 19 + len(body)
    return struct.pack("<IBIIIH", 7, kind, 1, size, at + size, 0) + body


def healthy_log() -> list[bytes]:
    """The events of a log without checksums: rows of every kind, statements, ids, a new file."""
    table = described(
        [("id", LONG, b""), ("name", VARCHAR, b"\x50\0"), ("price", DECIMAL, b"\x0a\2")]
    )
    old, new = row(1, "a", 250), row(1, None, 300)
    head = TABLE_ID + b"\x02\0\x03"
    bodies = [
        # The last byte before the place of a checksum says that there is none.
        (Kind.FORMAT, bytes(100)),
        (Kind.GTID, b"\0" + bytes(16) + struct.pack("<q", 5) + bytes(17)),
        (Kind.QUERY, query_body("BEGIN")),
        (Kind.TABLE_MAP, table),
        (Kind.WRITE, head + b"\x07" + old + row(2, "é" * 30, None)),
        (Kind.UPDATE, head + b"\x07\x07" + old + new),
        (Kind.TABLE_MAP, OTHERS),
        (Kind.DELETE, head + b"\x07" + new),
        (Kind.XID, bytes(8)),
        (Kind.TAGGED_GTID, bytes(range(2, 60, 2)) * 2),
        (Kind.QUERY, query_body("ALTER TABLE orders ADD COLUMN x INT")),
        (Kind.QUERY, query_body("SAVEPOINT s")),
        (Kind.XA_PREPARE, bytes(20)),
        (Kind.ROTATE, struct.pack("<q", 4) + b"b.000002"),
    ]
    found: list[bytes] = []
    at = 4
    for kind, body in bodies:
        found.append(_event(kind, body, at))
        at += len(found[-1])
    return found


HEALTHY = healthy_log()


def _packets(log: list[bytes]) -> Iterator[Packets]:
    for each in log:
        yield Packets(b"\0" + each, [0], [1 + len(each)])


def scan(log: list[bytes]) -> Scanned:
    tables = LoggedTables({ORDERS}, CHARSETS, is_mariadb=False, ignores_case=False)
    scanner = LogScanner(SOURCE, tables, ChangeDecoder(SCHEMA), on_truncate="fail")
    found = events(_packets(log), FILE, 4)
    # With a limit, rows are counted as well.
    limits = type(NO_LIMIT)(max_records=100)
    return scanner.scan(found, (FILE, 4), {}, limits, 2**40, MysqlGtids(""))


@dataclass
class DamagedServer(FakeLog):
    """A server that sends bytes as they are."""

    bytes_: tuple[bytes, ...] = ()

    @contextmanager
    def events(self, file: str, position: int) -> Iterator[Iterator[Event]]:
        yield events(_packets([*self.bytes_]), file, position)


def read(log: list[bytes], end: int) -> list[object]:
    fake = DamagedServer(None, bytes_=tuple(log))  # type: ignore[arg-type]
    options = MysqlCdcOptions(server=Server("host", "shop", "user"), tables=(ORDERS,))
    reader = MysqlSplitReader(SOURCE, SCHEMA, options, StoredSnapshots(MemoryStore(), SOURCE))
    first = MysqlPosition(binlog_file=FILE, binlog_position=4)
    last = MysqlPosition(binlog_file=FILE, binlog_position=end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "ServerLog", lambda *_: fake)
        patch.setattr(DamagedServer, "run", _run)
        return [*reader.read(SourceRange(start=first, end=last))]


def _run(self: DamagedServer, statement: str, values: object = ()) -> object:
    from laminar_dagster.clients.mysql.session import Answer

    if "COLLATIONS" in statement:
        return Answer(tuple(CHARSETS.items()), 1, 0)
    if "BINARY LOGS" in statement:
        return Answer(((FILE, 2**31),), 1, 0)
    return Answer((("version", "9.7.0"), ("lower_case_table_names", "0")), 2, 0)


END = 4 + sum(len(each) for each in HEALTHY[:9])


def test_the_healthy_log_is_read() -> None:
    chunks = read(HEALTHY[:9], END)
    assert sum(chunk.rows.num_rows for chunk in chunks) == 4  # type: ignore[attr-defined]
    assert scan(HEALTHY[:9]).position == END


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """A log with some bytes of some events changed, taken out, or cut off."""
    log = [*HEALTHY]
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(log) - 1))
        event = bytearray(log[number])
        # Of the header, that which says where the event ends is what a packet says as well.
        place = draw(st.integers(19, max(19, len(event) - 1)))
        match draw(st.sampled_from(["change", "cut", "random", "kind"])):
            case "change":
                event[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del event[place:]
            case "random":
                event[19:] = draw(st.binary(max_size=60))
            case _:
                event[4] = draw(st.sampled_from(list(Kind)))
        event[9:13] = struct.pack("<I", len(event))
        log[number] = bytes(event)
    return log


@settings(max_examples=400, deadline=None)
@given(damaged())
def test_damage_has_a_name_and_an_end(log: list[bytes]) -> None:
    for look in (scan, lambda log: read(log, END)):
        try:
            look(log)
        except LaminarError as error:
            assert error.exit_code != 75 or "stopped sending" in str(error)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=4), st.sampled_from(list(Kind)))
def test_events_of_any_bytes(bodies: list[bytes], kind: Kind) -> None:
    log, at = [], 4
    for body in bodies:
        log.append(_event(kind, body, at))
        at += len(log[-1])
    for look in (scan, lambda log: read(log, at)):
        try:
            look(log)
        except LaminarError as error:
            assert str(error)


def _with(number: int, body: bytes) -> list[bytes]:
    log = [*HEALTHY]
    at = 4 + sum(len(each) for each in log[:number])
    log[number] = _event(log[number][4], body, at)
    return log


@pytest.mark.parametrize(
    ("number", "body", "reason"),
    [
        (2, b"", "IndexError"),
        (3, b"\x09", "IndexError"),
        (4, TABLE_ID, "IndexError"),
        (1, b"\0", "ValueError"),
        (
            4,
            b"\x0a" + TABLE_ID[1:] + b"\x02\0\x03\x07" + row(1, "a", 1),
            "the number 10, which none",
        ),
        (5, TABLE_ID + b"\x02\0\x03\x07\x07" + row(1, "a", 1)[:-3], "longer than the event"),
    ],
)
def test_it_is_told_where(number: int, body: bytes, reason: str) -> None:
    place = 4 + sum(len(each) for each in HEALTHY[:number])
    with pytest.raises(DecodeFailed) as caught:
        scan(_with(number, body))
    assert reason in str(caught.value)
    assert caught.value.position.startswith(f"{FILE}:")
    assert str(place) in caught.value.position or "behind it" in caught.value.position


@pytest.mark.parametrize("kind", [Kind.MARIADB_GTID, Kind.TAGGED_GTID, Kind.QUERY, Kind.TABLE_MAP])
def test_an_event_that_is_too_short(kind: Kind) -> None:
    log = [HEALTHY[0], _event(kind, b"\1\2\3", 4 + len(HEALTHY[0]))]
    with pytest.raises(DecodeFailed, match="an event that is none: IndexError"):
        scan(log)


def test_a_file_that_is_none() -> None:
    for name in (b"\xff\xfe", b"without a number", b""):
        rotate = bytearray(_event(Kind.ROTATE, struct.pack("<q", 4) + name, 0))
        rotate[13:17] = bytes(4)
        with pytest.raises(DecodeFailed, match="it goes on in a file"):
            scan([HEALTHY[0], bytes(rotate)])


def test_a_table_without_columns_has_no_rows_without_end() -> None:
    log = _with(3, described([]))
    log[4] = _event(Kind.WRITE, TABLE_ID + b"\x02\0\0" + b"\1" * 20, 4)
    with pytest.raises(LaminarError):
        read(log, END)


def test_a_decimal_of_less_than_nothing() -> None:
    columns = [("id", LONG, b""), ("name", VARCHAR, b"\x50\0"), ("price", DECIMAL, b"\0\x12")]
    with pytest.raises(DecodeFailed, match=r"decimal\(0, 18\)"):
        read(_with(3, described(columns)), END)

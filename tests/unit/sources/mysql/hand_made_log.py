"""A binary log made by hand: events of `shop.orders`, which has an id and nothing else."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.changes.options import OnTruncate
from laminar_dagster.sources.mysql.change_rows import ChangeDecoder
from laminar_dagster.sources.mysql.events import Event, Kind
from laminar_dagster.sources.mysql.log_scan import LogScanner, Scanned
from laminar_dagster.sources.mysql.logged_tables import LoggedTables

SOURCE = SourceId("orders")
NO_LIMIT = Admission()
ORDERS = ("shop", "orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_weight", pa.int8())])
# Names of columns are in the log whatever their character set.
CHARSETS = {45: "utf8mb4"}
_TABLE_ID = struct.pack("<IH", 9, 0)
_LONGLONG = 8
_FORMAT_SIZE = 122


def sized(data: bytes) -> bytes:
    return bytes([len(data)]) + data


@dataclass
class HandMadeLog:
    """Writes events one behind the other, as a server does.

    Attributes:
        position: Where the next event begins in the file.
    """

    number: int = 1
    position: int = 4
    events: list[Event] = field(default_factory=list)

    @property
    def file(self) -> str:
        return f"b.{self.number:06d}"

    @property
    def place(self) -> tuple[str, int]:
        return self.file, self.position

    def add(self, kind: Kind, body: bytes = b"", *, size: int = 40) -> HandMadeLog:
        end = self.position + size
        mark = len(self.events)
        self.events.append(Event(kind, 7, 1, self.file, self.position, end, body, mark))
        self.position = end
        return self

    def new_file(self) -> HandMadeLog:
        """What a server begins with, whether it ended well or not."""
        self.number, self.position = self.number + 1, 4
        return self.add(Kind.FORMAT, size=_FORMAT_SIZE)

    def query(self, text: str, *, sql_mode: int = 0) -> HandMadeLog:
        return self.add(Kind.QUERY, query_body(text, sql_mode=sql_mode))

    def rows(self, *keys: int, table: tuple[str, str] = ORDERS) -> HandMadeLog:
        """Rows that are inserted, with what describes their table before them."""
        schema, name = (each.encode() for each in table)
        told = b"\x01" + sized(b"\0") + b"\x04" + sized(sized(b"id"))
        names = sized(schema) + b"\0" + sized(name) + b"\0"
        columns = bytes([1, _LONGLONG]) + sized(b"") + b"\0"
        self.add(Kind.TABLE_MAP, _TABLE_ID + b"\x01\0" + names + columns + told)
        images = b"".join(b"\0" + struct.pack("<q", key) for key in keys)
        return self.add(Kind.WRITE, _TABLE_ID + b"\x01\0\x02\0\x01\x01" + images)

    def transaction(self, *keys: int, table: tuple[str, str] = ORDERS) -> HandMadeLog:
        return self.query("BEGIN").rows(*keys, table=table).add(Kind.XID, bytes(8))

    def scan(
        self,
        *,
        limits: Admission = NO_LIMIT,
        on_truncate: OnTruncate = "fail",
        most_bytes: int = 2**40,
        ignores_case: bool = False,
    ) -> Scanned:
        """Look for the end of an epoch, from the first event on."""
        first = self.events[0]
        tables = LoggedTables({ORDERS}, CHARSETS, is_mariadb=False, ignores_case=ignores_case)
        scanner = LogScanner(SOURCE, tables, ChangeDecoder(SCHEMA), on_truncate=on_truncate)
        start = (first.file, first.start)
        return scanner.scan(self.events, start, {}, limits, most_bytes, None)


def query_body(text: str, *, sql_mode: int = 0) -> bytes:
    """What an event holds of a statement in `shop`, with the modes in which it was read."""
    status = b"\x00" + bytes(4) + b"\x01" + struct.pack("<Q", sql_mode)
    head = struct.pack("<IIBHH", 7, 0, len(ORDERS[0]), 0, len(status))
    return head + status + ORDERS[0].encode() + b"\0" + text.encode()

"""Rows of MySQL's own events, made by hand: of newer kinds, with many columns, and damaged."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest

from laminar_dagster.clients.mysql.packets import Packets
from laminar_dagster.sources.formats.debezium import DebeziumDecoder
from laminar_dagster.sources.formats.records import Records
from laminar_dagster.sources.mysql.change_rows import Change, ChangeDecoder, MissingColumn
from laminar_dagster.sources.mysql.events import DamagedLog, Kind, events
from laminar_dagster.sources.mysql.row_walk import RowsEvent, count_changes
from laminar_dagster.sources.mysql.table_map import (
    LoggedTable,
    UnreadableTable,
    read_table,
    table_id_of,
    table_name_of,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("_weight", pa.int8()),
    ]
)
CHARSETS = {45: "utf8mb4", 8: "latin1", 63: "binary"}
LONG, VARCHAR, DECIMAL, BLOB, STRING = 8, 15, 246, 252, 254


def sized(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def described(
    columns: list[tuple[str, int, bytes]], *, fields: bytes | None = None, charset: int = 45
) -> bytes:
    """The body of an event that describes ``shop.orders``."""
    names = b"".join(sized(name.encode()) for name, _, _ in columns)
    numeric = sum(kind in (LONG, DECIMAL) for _, kind, _ in columns)
    told = b"\x01" + sized(bytes((numeric + 7) // 8))
    told += b"\x02" + sized(bytes([charset])) + b"\x04" + sized(names)
    metadata = b"".join(meta for _, _, meta in columns)
    return (
        struct.pack("<IHH", 9, 0, 1)
        + sized(b"shop")
        + b"\0"
        + sized(b"orders")
        + b"\0"
        + bytes([len(columns)])
        + bytes(kind for _, kind, _ in columns)
        + sized(metadata)
        + bytes((len(columns) + 7) // 8)
        + (told if fields is None else fields)
    )


ORDERS = described([("id", LONG, b""), ("name", VARCHAR, b"\x50\0"), ("price", DECIMAL, b"\x0a\2")])


def table(body: bytes = ORDERS) -> LoggedTable:
    return read_table(body, CHARSETS, is_mariadb=False)


def row(key: int, name: str | None, cents: int | None) -> bytes:
    nulls = (name is None) << 1 | (cents is None) << 2
    data = bytes([nulls]) + struct.pack("<q", key)
    if name is not None:
        data += sized(name.encode())
    if cents is not None:
        whole, part = divmod(cents, 100)
        data += (
            bytes([(whole >> 24) ^ 0x80]) + (whole & 0xFFFFFF).to_bytes(3, "big") + bytes([part])
        )
    return data


def changes(
    kind: Kind, *rows: bytes, extra: bytes = b"\x02\0", flags: bytes = b"\x07"
) -> RowsEvent:
    """An event of the second version, which has room for more behind its flags."""
    both = flags * 2 if kind == Kind.UPDATE else flags
    body = struct.pack("<IHH", 9, 0, 1) + extra + b"\x03" + both + b"".join(rows)
    return RowsEvent(kind, body, 100, "binlog.000001:100")


def test_the_rows_are_those_that_debezium_tells() -> None:
    old, new = row(1, "a", 250), row(1, None, 300)
    found = [
        changes(Kind.WRITE, old, row(2, "é" * 30, None)),
        changes(Kind.UPDATE, old, new),
        changes(Kind.DELETE, new, extra=b"\x05\0abc"),
    ]
    ours = ChangeDecoder(SCHEMA).decode("f", [Change(TABLE, each, 0) for each in found])
    assert ours.set_aside is None, "without one change, what the others add up to is wrong"
    images = [
        {"op": "c", "after": {"id": 1, "name": "a", "price": "2.50"}},
        {"op": "c", "after": {"id": 2, "name": "é" * 30, "price": None}},
        {
            "op": "u",
            "before": {"id": 1, "name": "a", "price": "2.50"},
            "after": {"id": 1, "name": None, "price": "3.00"},
        },
        {"op": "d", "before": {"id": 1, "name": None, "price": "3.00"}},
    ]
    lines = [json.dumps(each).encode() for each in images]
    sizes = np.array([len(each) for each in lines])
    ends = np.cumsum(sizes + 1) - 1
    records = Records(b"\n".join(lines) + b"\n", ends - sizes, ends, np.arange(len(lines)))
    told = DebeziumDecoder(SCHEMA, decimal_mode="string").decode(records)
    assert told.bad == []
    assert ours.rows.equals(told.rows)
    assert (ours.records, ours.added) == (4, 1)
    assert count_changes(found, TABLE).tolist() == [2, 1, 1]


TABLE = table()


def test_a_table_and_its_name() -> None:
    assert table_id_of(ORDERS) == 9
    assert table_name_of(ORDERS) == ("shop", "orders")
    assert [str(each.type) for each in TABLE.columns] == [
        "integer of 64 bits",
        "text in utf8mb4",
        "decimal(10,2)",
    ]


def test_texts_and_bytes_are_told_apart_by_their_collation() -> None:
    columns = [("a", VARCHAR, b"\x50\0"), ("b", BLOB, b"\x02"), ("c", STRING, b"\xfe\x10")]
    found = table(described(columns, charset=63))
    assert [str(each.type) for each in found.columns] == ["bytes", "bytes", "binary(16)"]
    assert str(table(described(columns, charset=8)).columns[0].type) == "text in latin1"


@pytest.mark.parametrize("fields", [b"", b"\x01\x01\0"])
def test_a_description_without_names_is_refused(fields: bytes) -> None:
    with pytest.raises(UnreadableTable, match="binlog_row_metadata"):
        table(described([("id", LONG, b"")], fields=fields))
    with pytest.raises(UnreadableTable):
        table(ORDERS[:-3])


def test_rows_that_are_not_whole_are_refused() -> None:
    with pytest.raises(DamagedLog, match="binlog_row_image"):
        count_changes([changes(Kind.WRITE, row(1, "a", 1), flags=b"\x05")], TABLE)
    with pytest.raises(DamagedLog, match="longer than the event"):
        count_changes([changes(Kind.WRITE, row(1, "a", 1)[:-1])], TABLE)


def test_a_declared_column_that_is_not_there() -> None:
    fields = [*SCHEMA, pa.field("colour", pa.string())]
    with pytest.raises(MissingColumn, match="`colour` of shop"):
        ChangeDecoder(pa.schema(fields)).readers(TABLE)


# --- events --------------------------------------------------------------------------------------


def event(kind: int, body: bytes, end: int, *, flags: int = 0, checked: bool = True) -> bytes:
    data = struct.pack("<IBIIIH", 7, kind, 1, 19 + len(body) + 4 * checked, end, flags) + body
    return b"\0" + data + (struct.pack("<I", zlib.crc32(data)) if checked else b"")


def packets(*payloads: bytes) -> Packets:
    ends = np.cumsum([len(each) for each in payloads]).tolist()
    return Packets(b"".join(payloads), [0, *ends[:-1]], ends)


ROTATE = event(Kind.ROTATE, struct.pack("<Q", 4) + b"binlog.000001", 0, flags=0x20)
FORMAT = event(Kind.FORMAT, b"\x04\0" + bytes(60) + b"\x01", 256)


def test_places_beyond_four_gibibytes() -> None:
    near = 2**32 - 10
    first, second = (
        event(Kind.XID, b"x" * 8, (near + 31) % 2**32),
        event(99, b"", 2**32 % 2**32 + 44),
    )
    found = list(events([packets(first, second)], "binlog.000001", near))
    assert [(each.end, each.kind) for each in found] == [(near + 31, 16), (2**32 + 44, 99)]


def test_a_new_file_begins_anew() -> None:
    again = event(Kind.ROTATE, struct.pack("<Q", 4) + b"binlog.000002", 0, flags=0x20)
    xid = event(Kind.XID, bytes(8), 287)
    found = list(events([packets(ROTATE, FORMAT, xid, again, FORMAT)], "binlog.000001", 4))
    assert [(each.file, each.end) for each in found] == [
        ("binlog.000001", 256),
        ("binlog.000001", 287),
        ("binlog.000002", 256),
    ]
    assert found[0].mark == found[2].mark


@pytest.mark.parametrize("place", [1, 20, 25])
def test_a_flipped_bit_is_found(place: int) -> None:
    xid = bytearray(event(Kind.XID, bytes(8), 287))
    xid[place] ^= 4
    with pytest.raises(DamagedLog):
        list(events([packets(ROTATE, FORMAT, bytes(xid))], "binlog.000001", 4))


def test_logs_without_checksums() -> None:
    plain = event(Kind.FORMAT, b"\x04\0" + bytes(60) + b"\x00" + bytes(4), 256, checked=False)
    xid = event(Kind.XID, bytes(8), 283, checked=False)
    found = list(events([packets(plain, xid)], "binlog.000001", 4))
    assert found[1].body == bytes(8)

"""The decoder against bytes made by hand: shapes, batches, what is bad, what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import DecodeFailed, SchemaChanged
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.postgres.decoding import ChangeDecoder, DecoderSettings
from laminar_dagster.sources.postgres.messages import MalformedStream, messages_of
from tests.unit.sources.postgres.stream import (
    UNCHANGED,
    begin,
    commit,
    copied,
    delete,
    insert,
    relation,
    stream,
    truncate,
    update,
)

# Beyond 31 bits, as ids of an old database are.
OID = 3_000_000_000
INT8, TEXT, TIME = 20, 25, 1184
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("_op", pa.string()),
        pa.field("_table", pa.string()),
        pa.field("_position", pa.string()),
        pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_weight", pa.int8()),
    ]
)
ORDERS = relation(OID, "public.orders", [("id", INT8), ("name", TEXT)], ["id"])
END = 2**62


def decoder(**settings: Any) -> ChangeDecoder:
    tables = settings.pop("tables", ("public.orders",))
    return ChangeDecoder("orders", SCHEMA, DecoderSettings(tables, **settings))


def brief(chunk: PlacedChunk) -> list[tuple[Any, ...]]:
    return [(row["id"], row["name"], row["_weight"]) for row in chunk.rows.to_pylist()]


def reasons(chunk: PlacedChunk) -> list[str]:
    return [row["reason"] for row in chunk.bad.to_pylist()]


def test_every_kind_of_change() -> None:
    sent = stream(
        begin(16, micros=1_000_000),
        ORDERS,
        insert(OID, "1", "a"),
        update(OID, ["1", "b"], ["1", "a"]),
        update(OID, ["1", None]),
        delete(OID, ["1", None]),
        commit(16, 24),
    )
    chunk = decoder().decode(sent, 0, END)
    assert brief(chunk) == [(1, "a", 1), (1, "a", -1), (1, "b", 1), (1, None, 1), (1, None, -1)]
    assert [row["_op"] for row in chunk.rows.to_pylist()] == ["c", "u", "u", "u", "d"]
    first = chunk.rows.to_pylist()[0]
    assert (first["_table"], first["_position"]) == ("public.orders", "0/10")
    assert first["_timestamp"].isoformat() == "2000-01-01T00:00:01+00:00"
    assert (chunk.records, chunk.added, chunk.positions.to_pylist()) == (4, 1, [16] * 5)
    assert chunk.set_aside is None, "without one change, what the others add up to is wrong"
    messages = [insert(OID, "1", "a"), update(OID, ["1", "b"], ["1", "a"])]
    messages += [update(OID, ["1", None]), delete(OID, ["1", None])]
    assert chunk.size_bytes == sum(map(len, messages))


@given(cut=st.integers(0, 10), start=st.sampled_from([0, 10, 11, 20, 30]), end=st.integers(0, 31))
def test_a_range_holds_whole_transactions_wherever_batches_end(
    cut: int, start: int, end: int
) -> None:
    sent: list[bytes] = []
    for lsn in (10, 20, 30):
        sent += [begin(lsn), *([ORDERS] if lsn == 10 else []), insert(OID, str(lsn), "x")]
        sent += [commit(lsn, lsn + 1)]
    whole = decoder()
    parts = [part for part in (sent[:cut], sent[cut:]) if part]
    found = [row for part in parts for row in brief(whole.decode(stream(*part), start, end))]
    assert found == [(lsn, "x", 1) for lsn in (10, 20, 30) if start <= lsn < end]


def test_a_table_that_changes_between_two_rows() -> None:
    wider = relation(OID, "public.orders", [("more", TEXT), ("name", TEXT), ("id", INT8)], ["id"])
    sent = stream(begin(1), ORDERS, insert(OID, "1", "a"), wider, insert(OID, "x", "b", "2"))
    assert brief(decoder().decode(sent, 0, END)) == [(1, "a", 1), (2, "b", 1)]


def test_rows_of_several_tables_stay_in_order() -> None:
    items = relation(5, "shop.items", [("id", INT8)])
    sent = stream(
        begin(1), ORDERS, items, insert(5, "1"), insert(OID, "2", "a"), insert(5, "3"),
        insert(OID, "4", "b"),
    )  # fmt: skip
    both = decoder(tables=("public.orders", "shop.items")).decode(sent, 0, END)
    assert [row["id"] for row in both.rows.to_pylist()] == [1, 2, 3, 4]
    assert [row["_table"][:4] for row in both.rows.to_pylist()] == ["shop", "publ"] * 2
    one = decoder().decode(sent, 0, END)
    assert (brief(one), one.records) == ([(2, "a", 1), (4, "b", 1)], 2)


def test_a_value_that_was_not_sent() -> None:
    sent = stream(
        begin(1), ORDERS,
        update(OID, ["1", UNCHANGED], ["1", "long"]),
        update(OID, ["2", UNCHANGED], ["1", None], mark=b"K"),
        update(OID, ["3", UNCHANGED]),
        update(OID, ["4", UNCHANGED], ["4", None]),
    )  # fmt: skip
    chunk = decoder().decode(sent, 0, END)
    assert brief(chunk) == [(1, "long", -1), (1, "long", 1), (4, None, -1), (4, None, 1)]
    assert len(reasons(chunk)) == 2
    assert all("`name` was not sent" in each for each in reasons(chunk))


def test_whole_rows_may_be_required() -> None:
    sent = stream(
        begin(1), ORDERS,
        update(OID, ["1", "b"]),
        update(OID, ["2", "b"], ["1", None], mark=b"K"),
        delete(OID, ["2", None], mark=b"K"),
        delete(OID, ["3", "c"]),
    )  # fmt: skip
    chunk = decoder(before="required").decode(sent, 0, END)
    assert brief(chunk) == [(3, "c", -1)]
    assert len(reasons(chunk)) == 3


def test_a_key_that_is_the_whole_row_is_enough() -> None:
    keys = ChangeDecoder(
        "o", pa.schema([SCHEMA.field("id"), SCHEMA.field("_weight")]),
        DecoderSettings(("public.orders",), before="required"),
    )  # fmt: skip
    sent = stream(begin(1), ORDERS, delete(OID, ["2", None], mark=b"K"))
    assert keys.decode(sent, 0, END).rows.to_pylist() == [{"id": 2, "_weight": -1}]


def test_bad_values_do_not_touch_their_neighbours() -> None:
    sent = stream(
        begin(9), ORDERS, insert(OID, "1", "a"), insert(OID, "one", "b"), insert(OID, None, "c"),
        insert(OID, "4", "d"),
    )  # fmt: skip
    chunk = decoder().decode(sent, 0, END)
    assert brief(chunk) == [(1, "a", 1), (4, "d", 1)]
    assert "`id` of `after`" in reasons(chunk)[0]
    assert "must not be null" in reasons(chunk)[1]
    assert chunk.bad.column("raw")[0].as_py() == insert(OID, "one", "b")
    assert chunk.bad.column("position").to_pylist() == [9, 9]


def test_truncates() -> None:
    sent = stream(begin(1), ORDERS, truncate(4, OID), truncate(4))
    with pytest.raises(DecodeFailed, match="emptied"):
        decoder().decode(sent, 0, END)
    assert len(reasons(decoder(on_truncate="dead_letter").decode(sent, 0, END))) == 1
    skipped = decoder(on_truncate="skip").decode(sent, 0, END)
    assert (skipped.records, skipped.skipped) == (1, 1)
    assert decoder().decode(sent, 2, END).records == 0


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([("name", TEXT)], "it has no column `id`"),
        ([("id", TIME), ("name", TEXT)], "`id` is timestamptz, declared as int64"),
        ([("id", INT8)], "it has no column `name`"),
    ],
)
def test_a_table_that_does_not_fit_is_named(columns: list[tuple[str, int]], told: str) -> None:
    other = relation(OID, "public.orders", columns)
    with pytest.raises(SchemaChanged, match=told):
        decoder().decode(stream(begin(1), other, insert(OID, *["1"] * len(columns))), 0, END)


def test_a_column_that_is_gone_may_be_null() -> None:
    other = stream(begin(1), relation(OID, "public.orders", [("id", INT8)]), insert(OID, "1"))
    assert brief(decoder(on_schema_change="ignore").decode(other, 0, END)) == [(1, None, 1)]


def test_an_enum_suits_a_string() -> None:
    mood = relation(OID, "public.orders", [("id", INT8), ("name", 16_999)])
    assert brief(decoder().decode(stream(begin(1), mood, insert(OID, "1", "sad")), 0, END)) == [
        (1, "sad", 1)
    ]


@given(place=st.integers(0, 60), value=st.integers(0, 255))
def test_damaged_bytes_end_in_a_name_or_in_rows(place: int, value: int) -> None:
    """Never in a value beyond its message, an error without a name, or a change that is gone."""
    message = bytearray(update(OID, ["12", "bc"], ["1", "a"]))
    message[place % len(message)] = value
    try:
        chunk = decoder(on_truncate="skip").decode(
            stream(begin(1), ORDERS, bytes(message), insert(OID, "7", "z")), 0, END
        )
    except MalformedStream:
        return
    assert brief(chunk)[-1] == (7, "z", 1)
    assert chunk.records == 2


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ([b"B" + bytes(36)], "of a transaction has another length"),
        ([b"C" + bytes(36)], "of a transaction has another length"),
        ([b"X" + insert(OID, "1", "a")[1:]], "a message is of an unknown kind"),
        ([begin(9), begin(8)], "transactions are not in the order of their commits"),
        ([ORDERS, insert(OID, "1", "a") + b"t"], "goes on after its last tuple"),
        ([ORDERS, b"D" + update(OID, ["1", "a"], ["2", "b"])[1:]], "goes on after its last tuple"),
        ([ORDERS, b"I" + update(OID, ["1", "a"], ["2", "b"])[1:]], "the tuples of its kind"),
        ([ORDERS, b"D" + insert(OID, "1", "a")[1:]], "the tuples of its kind"),
        ([ORDERS + b"t"], "a message goes on after its end"),
        ([truncate(OID) + b"t"], "a message goes on after its end"),
        ([relation(OID, "public.orders", [("id", INT8)]).replace(b"id", b"\xff\xff")], "not UTF-8"),
    ],
)
def test_what_might_hide_a_change_is_refused(sent: list[bytes], told: str) -> None:
    with pytest.raises(MalformedStream, match=told):
        decoder(on_truncate="skip").decode(stream(begin(1), *sent), 0, END)


def test_transactions_that_go_back_between_batches_are_refused() -> None:
    reader = decoder()
    reader.decode(stream(begin(9)), 0, END)
    with pytest.raises(MalformedStream, match="order of their commits"):
        reader.decode(stream(begin(8)), 0, END)


def test_what_is_no_row_of_messages_is_refused() -> None:
    row = copied(begin(1), insert(9, "1"))
    for cut in range(len(row)):
        with pytest.raises(MalformedStream):
            messages_of(row[:cut])
    with pytest.raises(MalformedStream):
        messages_of(struct.pack(">h", 1) + row[2:])
    with pytest.raises(MalformedStream, match="do not add up"):
        messages_of(row[:6] + struct.pack(">i", 99) + row[10:])
    with pytest.raises(MalformedStream, match="not described"):
        decoder().decode(stream(begin(1), insert(9, "1")), 0, END)
    with pytest.raises(MalformedStream, match="cut off"):
        decoder().decode(stream(begin(1), ORDERS[:-3]), 0, END)
    assert decoder().decode(messages_of(copied()), 0, END).records == 0

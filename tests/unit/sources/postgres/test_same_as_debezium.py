"""The same changes, from pgoutput and as Debezium tells them: the same rows, for the same views."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats.debezium import DebeziumDecoder
from laminar_dagster.sources.formats.records import Records
from laminar_dagster.sources.postgres.decoding import ChangeDecoder, DecoderSettings
from tests.unit.sources.postgres.stream import begin, delete, insert, relation, stream, update

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("_weight", pa.int8()),
    ]
)
TABLE = relation(
    7, "public.orders", [("id", 20), ("name", 25), ("price", 1700), ("at", 1184)], ["id"]
)
OLD = ("1", "a", "2.50", "2024-02-29 11:00:00.123456+00")
NEW = ("1", None, "3.00", "2024-02-29 12:00:00+00")
TIMES = {OLD: "2024-02-29T11:00:00.123456Z", NEW: "2024-02-29T12:00:00Z"}


def image(row: tuple[Any, ...]) -> dict[str, Any]:
    return {"id": int(row[0]), "name": row[1], "price": row[2], "at": TIMES[row]}


def envelope(op: str, before: Any, after: Any) -> bytes:
    images = {"before": before and image(before), "after": after and image(after)}
    return json.dumps({"op": op, **images}).encode()


def test_rows_are_the_same() -> None:
    lines = [
        envelope("c", None, OLD),
        envelope("u", OLD, NEW),
        envelope("u", None, NEW),
        envelope("d", NEW, None),
    ]
    sizes = np.array([len(each) for each in lines])
    ends = np.cumsum(sizes + 1) - 1
    records = Records(b"\n".join(lines) + b"\n", ends - sizes, ends, np.arange(len(lines)))
    told = DebeziumDecoder(SCHEMA, decimal_mode="string").decode(records)
    assert told.bad == []
    sent = stream(
        begin(1), TABLE, insert(7, *OLD), update(7, NEW, OLD), update(7, NEW), delete(7, NEW)
    )
    ours = ChangeDecoder("s", SCHEMA, DecoderSettings(("public.orders",))).decode(sent, 0, 9)
    assert ours.rows.equals(told.rows)
    assert ours.rows.num_rows == 5

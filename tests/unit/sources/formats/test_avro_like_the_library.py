"""Avro messages of any schema are decoded to what fastavro makes of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laminar_dagster.sources.formats import avro_walk
from laminar_dagster.sources.formats.avro import AvroDecoder
from tests.unit.sources.formats.avro_cases import ROOTS, Case
from tests.unit.sources.formats.messages import by_place, few_lanes, records_of, same

CHECKS = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def by_the_library(schema: Any, message: bytes) -> Any:
    """What the library reads, or None unless it takes exactly all bytes."""
    raw = io.BytesIO(message)
    try:
        value = fastavro.schemaless_reader(raw, schema, None)
    except Exception:
        return None
    return value if raw.tell() == len(message) else None


def decoded(case: Case, messages: list[bytes]) -> tuple[dict[int, Any], dict[int, str]]:
    """The same, reasons included, in rounds and one by one."""
    reader = AvroDecoder(pa.schema(list(case.kind)), writer_schema=json.dumps(case.writer))
    with few_lanes(avro_walk, 0):
        found = by_place(reader.decode(records_of(messages)))
    with few_lanes(avro_walk, 2**62):
        assert same(found, by_place(reader.decode(records_of(messages))))
    return found


@CHECKS
@given(st.data())
def test_what_the_library_writes_is_read_alike(data: st.DataObject) -> None:
    case = data.draw(ROOTS)
    values = data.draw(st.lists(case.values, max_size=6))
    schema = fastavro.parse_schema(case.writer)
    messages = [encoded(schema, each) for each in values]
    rows, reasons = decoded(case, messages)
    assert reasons == {}
    for place, message in enumerate(messages):
        assert same(rows[place], case.expect(by_the_library(schema, message)))


def mutants(message: bytes) -> Iterator[bytes]:
    for length in range(len(message)):
        yield message[:length]
    yield message + b"\0"
    for place in range(len(message)):
        for flip in (0x01, 0x02, 0x40, 0x80, 0xFF):
            changed = bytes([message[place] ^ flip])
            yield message[:place] + changed + message[place + 1 :]


@CHECKS
@given(st.data())
def test_damaged_messages_are_bad_or_read_alike_and_hurt_no_other(data: st.DataObject) -> None:
    case = data.draw(ROOTS)
    schema = fastavro.parse_schema(case.writer)
    good = encoded(schema, data.draw(case.values))
    batch = [good]
    for mutant in mutants(good):
        batch += [mutant, good]
    rows, reasons = decoded(case, batch)
    assert len(rows) + len(reasons) == len(batch)
    for place in range(0, len(batch), 2):
        assert same(rows[place], rows[0])
    assert same(rows[0], case.expect(by_the_library(schema, good)))
    for place in range(1, len(batch), 2):
        value = by_the_library(schema, batch[place])
        if value is not None and place in rows:
            assert same(rows[place], case.expect(value))


def test_every_flip_of_every_byte() -> None:
    text = pa.struct([pa.field("t", pa.string()), pa.field("n", pa.int64())])
    inner = {
        "type": "record",
        "name": "In",
        "fields": [{"name": "t", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }
    fields: dict[str, tuple[Any, pa.DataType, Any]] = {
        "a": ("long", pa.int64(), -(2**40)),
        "b": ({"type": "array", "items": inner}, pa.list_(pa.field("element", text)), None),
        "c": ({"type": "map", "values": "double"}, pa.map_(pa.string(), pa.float64()), {"k": 0.5}),
        "d": (["null", "string"], pa.string(), "é"),
        "e": ("boolean", pa.bool_(), True),
        "f": ("float", pa.float32(), 1.5),
    }
    writer = {
        "type": "record",
        "name": "Out",
        "fields": [{"name": name, "type": kind} for name, (kind, _, _) in fields.items()],
    }
    kinds = [pa.field(name, kind) for name, (_, kind, _) in fields.items()]
    value = {name: given for name, (_, _, given) in fields.items()}
    value["b"] = [{"t": "x", "n": 7}, {"t": "", "n": None}]
    case = Case(writer, pa.struct(kinds), st.none(), _as_pairs)
    schema = fastavro.parse_schema(writer)
    message = encoded(schema, value)
    flips = [
        message[:place] + bytes([message[place] ^ flip]) + message[place + 1 :]
        for place in range(len(message))
        for flip in range(1, 256)
    ]
    rows, reasons = decoded(case, flips)
    assert len(rows) + len(reasons) == len(flips)
    agreed = 0
    for place, flipped in enumerate(flips):
        known = by_the_library(schema, flipped)
        if known is not None and place in rows:
            assert same(rows[place], case.expect(known))
            agreed += 1
    assert agreed > len(flips) // 4


def _as_pairs(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "c": list(value["c"].items())}

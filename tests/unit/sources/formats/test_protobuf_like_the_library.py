"""Protobuf messages are decoded to what the real runtime makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from laminar_dagster.sources.formats import protobuf_scan
from laminar_dagster.sources.formats.protobuf import ProtobufDecoder
from tests.unit.sources.formats import protobuf_cases as cases
from tests.unit.sources.formats.messages import by_place, few_lanes, records_of, same

CHECKS = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
SOME = ("i64", "s", "inner", "one", "two", "ints", "d", "counts", "at")
KINDS: dict[str, tuple[str, str, dict[str, str], st.SearchStrategy[Any]]] = {
    "proto3": (cases.PROTO3, "shop.Event", cases.COLUMNS, cases.VALUES3),
    "proto2": (cases.PROTO2, "Event", cases.COLUMNS2, cases.VALUES2),
    "some": (cases.PROTO3, "shop.Event", {name: cases.COLUMNS[name] for name in SOME}, st.none()),
}
both = pytest.mark.parametrize("kind", ["proto3", "proto2"])


def decoded(kind: str, messages: list[bytes]) -> tuple[dict[int, Any], dict[int, str]]:
    text, name, columns, _ = KINDS[kind]
    schema = cases.declared(columns)
    reader = ProtobufDecoder(schema, descriptor_set=cases.descriptor_set(text), message=name)
    with few_lanes(protobuf_scan, 0):
        rows, reasons = by_place(reader.decode(records_of(messages)))
    with few_lanes(protobuf_scan, 2**62):
        assert same((rows, reasons), by_place(reader.decode(records_of(messages))))
    maps = [each.name for each in schema if pa.types.is_map(each.type)]
    for row in rows.values():
        row.update({each: sorted(row[each], key=lambda pair: pair[0]) for each in maps})
    return rows, reasons


def by_the_library(kind: str, message: bytes) -> Any:
    text, name, columns, _ = KINDS[kind]
    try:
        found = cases.message_class(text, name).FromString(message)
        return cases.row_of(found, list(cases.declared(columns)))
    except Exception:
        return None


@both
@CHECKS
@given(st.data())
def test_what_the_library_writes_is_read_alike(kind: str, data: st.DataObject) -> None:
    text, name, _, known = KINDS[kind]
    made = cases.message_class(text, name)
    values = data.draw(st.lists(known, max_size=6))
    messages = [made(**each).SerializeToString() for each in values]
    rows, reasons = decoded(kind, messages)
    assert reasons == {}
    for place, message in enumerate(messages):
        assert same(rows[place], by_the_library(kind, message))


def mutants(message: bytes) -> Iterator[bytes]:
    for length in range(len(message)):
        yield message[:length]
    yield message + b"\0"
    yield message + message
    for place in range(len(message)):
        for flip in (0x01, 0x02, 0x08, 0x80, 0xFF):
            changed = bytes([message[place] ^ flip])
            yield message[:place] + changed + message[place + 1 :]


@both
@CHECKS
@given(st.data())
def test_damaged_messages_are_bad_or_read_alike_and_hurt_no_other(
    kind: str, data: st.DataObject
) -> None:
    text, name, _, known = KINDS[kind]
    made = cases.message_class(text, name)
    value = data.draw(known)
    few = data.draw(st.lists(st.sampled_from(sorted(value) or ["none"]), max_size=5, unique=True))
    if kind == "proto2":
        few.append("id")
    good = made(**{each: value[each] for each in few if each in value}).SerializeToString()
    batch = [good]
    for mutant in mutants(good):
        batch += [mutant, good]
    rows, reasons = decoded(kind, batch)
    assert len(rows) + len(reasons) == len(batch)
    for place in range(0, len(batch), 2):
        assert same(rows[place], rows[0])
    assert same(rows[0], by_the_library(kind, good))
    for place in range(1, len(batch), 2):
        value = by_the_library(kind, batch[place])
        if value is not None and place in rows:
            assert same(rows[place], value), batch[place]


def test_every_flip_of_every_byte() -> None:
    made = cases.message_class(cases.PROTO3, "shop.Event")
    inner = {"name": "é", "number": -1, "deltas": [1, -300]}
    value = {"i64": 2**40, "s": "text", "inner": inner, "two": "x", "ints": [1, 300], "d": 0.5}
    message = made(**value, counts={"k": 1}, at={"seconds": 5, "nanos": 10**6}).SerializeToString()
    flips = [
        message[:place] + bytes([message[place] ^ flip]) + message[place + 1 :]
        for place in range(len(message))
        for flip in range(1, 256)
    ]
    rows, reasons = decoded("some", flips)
    assert len(rows) + len(reasons) == len(flips)
    agreed = 0
    for place, flipped in enumerate(flips):
        known = by_the_library("some", flipped)
        if known is not None and place in rows:
            assert same(rows[place], known), flipped
            agreed += 1
    assert agreed > len(flips) // 4

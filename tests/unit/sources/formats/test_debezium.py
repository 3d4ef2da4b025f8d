"""Envelopes of Debezium, against an oracle that looks at one message at a time."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.kafka.decoding import MessageDecoder
from laminar_dagster.sources.kafka.options import read_options
from tests.unit.sources.kafka.batches import Value, bad, batch_of, decode, options, rows

WEIGHT = pa.field("_weight", pa.int8())
PLAIN = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), WEIGHT])
TIMES = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("cost", pa.decimal128(10, 2)),
        WEIGHT,
    ]
)
NOON = datetime(2024, 5, 1, 12, 0, 0, 123_456, tzinfo=UTC)


def envelope(op: str | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"db": "d"}, "op": op, "ts_ms": 1}


def wrapped(payload: Any, **fields: dict[str, Any]) -> dict[str, Any]:
    """An envelope beside its schema, as ``schemas.enable`` gives it."""
    inner = [{"field": name, "optional": True, **each} for name, each in fields.items()]
    images = [{"type": "struct", "field": name, "fields": inner} for name in ("before", "after")]
    outer = [*images, {"type": "string", "field": "op"}]
    return {"schema": {"type": "struct", "name": "E", "fields": outer}, "payload": payload}


def read(*messages: Any, schema: pa.Schema = PLAIN, **given: Any) -> PlacedChunk:
    values = [None if each is None else json.dumps(each).encode() for each in messages]
    return decode(schema, batch_of(values), format="debezium-json", **given)


def reasons(chunk: PlacedChunk) -> list[str]:
    return [each[2] for each in bad(chunk)]


@pytest.mark.parametrize("wrap", [lambda value: value, wrapped])
def test_each_change_gives_its_rows(wrap: Any) -> None:
    one, two = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    chunk = read(
        wrap(envelope("r", None, one)),
        wrap(envelope("u", one, two)),
        wrap(envelope("d", two, None)),
        wrap(envelope("c", None, {"id": 2, "more": 5})),
    )
    assert [(each["id"], each["name"], each["_weight"]) for each in rows(chunk)] == [
        (1, "a", 1),
        (1, "a", -1),
        (1, "b", 1),
        (1, "b", -1),
        (2, None, 1),
    ]
    assert chunk.positions.to_pylist() == [0, 3, 3, 6, 9]
    assert (chunk.records, chunk.added, chunk.skipped, chunk.bad.num_rows) == (4, 1, 0, 0)


def test_an_update_without_the_row_before_is_one_row() -> None:
    chunk = read(envelope("u", None, {"id": 1}), {"op": "u", "after": {"id": 2}})
    assert [(each["id"], each["_weight"]) for each in rows(chunk)] == [(1, 1), (2, 1)]
    assert (chunk.added, chunk.skipped) == (0, 0)


def test_an_update_without_the_row_before_is_bad_where_that_is_required() -> None:
    chunk = read(envelope("u", None, {"id": 1}), debezium_before="required")
    assert chunk.rows.num_rows == 0
    assert reasons(chunk) == [
        "an update without `before`, which is required: let the source send whole rows "
        "(Postgres: REPLICA IDENTITY FULL)"
    ]


def test_what_is_about_no_row_is_skipped_and_counted() -> None:
    chunk = read(
        None,
        envelope("m"),
        {"status": "BEGIN", "id": "1", "event_count": None},
        wrapped({"status": "END", "id": "1", "event_count": 2}),
        wrapped(None),
        envelope("c", None, {"id": 1}),
    )
    assert [each["id"] for each in rows(chunk)] == [1]
    assert (chunk.records, chunk.skipped, reasons(chunk)) == (6, 5, [])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (envelope("t"), "the table was emptied (truncate), which cannot be said of single rows"),
        (envelope("x"), "unknown `op` 'x'"),
        (envelope("c"), "`after` is missing"),
        (envelope("u", {"id": 1}), "`after` is missing"),
        (
            envelope("d"),
            "a delete without `before`: let the source send whole rows "
            "(Postgres: REPLICA IDENTITY FULL)",
        ),
        ({"id": 1}, "no `op`: not an envelope of Debezium; rows alone are format json"),
        ({"status": "PAID"}, "no `op`: not an envelope of Debezium; rows alone are format json"),
        (envelope("c", None, {"id": "x"}), ""),
        (envelope("c", None, 5), ""),
        (
            envelope("u", {"id": 1}, {"id": 1, "name": "__debezium_unavailable_value"}),
            "`name` was not sent: let the source send whole rows (Postgres: REPLICA IDENTITY FULL)",
        ),
    ],
)
def test_what_cannot_become_rows_is_bad_and_says_why(message: Any, reason: str) -> None:
    good = envelope("u", {"id": 8}, {"id": 9})
    chunk = read(good, message, good)
    assert [each["id"] for each in rows(chunk)] == [8, 9, 8, 9]
    assert [each[:2] for each in bad(chunk)] == [(3, json.dumps(message).encode())]
    if reason:
        assert reasons(chunk) == [reason]


UNSENT = "__debezium_unavailable_value"
UNSENT_BYTES = base64.b64encode(UNSENT.encode()).decode()
# What Java's ``UUID.nameUUIDFromBytes`` makes of it.
UNSENT_UUID = str(uuid.UUID(bytes=hashlib.md5(UNSENT.encode()).digest(), version=3))
TEXTS = pa.list_(pa.field("element", pa.string()))


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), UNSENT),
        (pa.string(), UNSENT_BYTES),
        (pa.binary(), UNSENT_BYTES),
        (TEXTS, [UNSENT]),
        (pa.list_(pa.field("element", pa.binary())), ["AA==", UNSENT_BYTES]),
        (pa.list_(pa.field("element", TEXTS)), [[], ["a"], [UNSENT]]),
        (pa.list_(pa.field("element", pa.int32())), list(UNSENT.encode())),
        (pa.list_(pa.field("element", pa.int64())), list(UNSENT.encode())),
        (pa.string(), UNSENT_UUID),
        (pa.map_(pa.string(), pa.string()), {UNSENT: UNSENT}),
        (pa.map_(pa.string(), TEXTS), {"a": ["b"], "c": [UNSENT]}),
        (pa.struct([pa.field("a", pa.int64()), pa.field("b", TEXTS)]), {"b": [UNSENT]}),
    ],
)
def test_a_value_that_was_not_sent_is_no_data(
    kind: pa.DataType, value: Any, is_alone: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("long", kind), WEIGHT])
    others = [] if is_alone else [envelope("c", None, {"id": 1}), envelope("d", {"id": 2})]
    told = envelope("u", None, {"id": 3, "long": value})
    chunk = read(*others, told, *others, schema=schema)
    assert [each["id"] for each in rows(chunk)] == ([] if is_alone else [1, 2, 1, 2])
    assert reasons(chunk) == [
        "`long` was not sent: let the source send whole rows (Postgres: REPLICA IDENTITY FULL)"
    ]


def test_a_value_that_only_resembles_what_was_not_sent_is_data() -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("t", TEXTS), WEIGHT])
    values: list[Any] = [[f"{UNSENT}s"], [None], None, []]
    chunk = read(*(envelope("c", None, {"id": 1, "t": each}) for each in values), schema=schema)
    assert [each["t"] for each in rows(chunk)] == values


def test_a_delete_that_tells_the_key_alone_is_bad_where_more_is_needed() -> None:
    schema = pa.schema([PLAIN.field(0), PLAIN.field(1).with_nullable(False), WEIGHT])
    chunk = read(envelope("d", {"id": 1}), schema=schema)
    assert reasons(chunk) == [
        "`name` of `before` must not be null: let the source send whole rows "
        "(Postgres: REPLICA IDENTITY FULL)"
    ]


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("2024-05-01T12:00:00.123456Z", {}),
        ("2024-05-01T14:00:00.123456+02:00", {}),
        (1714564800123, {}),
        (1714564800123456, {"debezium_time_unit": "us"}),
        (1714564800123456789, {"debezium_time_unit": "ns"}),
    ],
)
def test_a_timestamp_is_text_or_a_number_of_the_unit_that_is_set(
    value: Any, given: dict[str, Any]
) -> None:
    chunk = read(envelope("c", None, {"at": value}), schema=TIMES, **given)
    expected = NOON if given or isinstance(value, str) else NOON.replace(microsecond=123_000)
    assert [each["at"] for each in rows(chunk)] == [expected]


@pytest.mark.parametrize(
    ("name", "value", "micros"),
    [
        ("io.debezium.time.Timestamp", 1714564800123, 123_000),
        ("io.debezium.time.MicroTimestamp", 1714564800123456, 123_456),
        ("io.debezium.time.NanoTimestamp", 1714564800123456999, 123_456),
        ("org.apache.kafka.connect.data.Timestamp", 1714564800123, 123_000),
        ("io.debezium.time.ZonedTimestamp", "2024-05-01T12:00:00.123456Z", 123_456),
    ],
)
def test_the_schema_beside_an_envelope_tells_the_unit(name: str, value: Any, micros: int) -> None:
    message = wrapped(envelope("c", None, {"at": value}), at={"type": "int64", "name": name})
    chunk = read(message, schema=TIMES, debezium_time_unit="ns")
    assert [each["at"] for each in rows(chunk)] == [NOON.replace(microsecond=micros)]


def test_units_are_told_message_by_message() -> None:
    def message(name: str | None, value: int) -> Any:
        about = {"type": "int64", **({"name": name} if name else {})}
        return wrapped(envelope("u", {"at": value}, {"at": value}), id={"type": "int64"}, at=about)

    chunk = read(
        message("io.debezium.time.MicroTimestamp", 1714564800000000),
        message("io.debezium.time.Timestamp", 1714564800000),
        message(None, 1714564800000),
        envelope("c", None, {"at": 1714564800000}),
        message("io.debezium.time.MicroTime", 5),
        schema=TIMES,
    )
    assert {each["at"] for each in rows(chunk)} == {NOON.replace(microsecond=0)}
    assert chunk.rows.num_rows == 7
    assert reasons(chunk) == [
        "`at`: io.debezium.time.MicroTime where timestamp[us, tz=UTC] is declared"
    ]


def test_a_number_that_is_no_time_is_bad() -> None:
    chunk = read(envelope("c", None, {"at": 1714564800123456}), schema=TIMES)
    assert reasons(chunk) == [
        "`at`: 1714564800123456 milliseconds are beyond the year 9999 or before the year 1; "
        "`debezium.time.unit` sets the unit"
    ]
    for value in (2**63 - 1, -(2**63), 1.5, True, "soon"):
        assert read(envelope("c", None, {"at": value}), schema=TIMES).bad.num_rows == 1


def test_dates_are_text_or_days() -> None:
    chunk = read(
        envelope("c", None, {"day": 19844}),
        envelope("c", None, {"day": "2024-05-01"}),
        envelope("c", None, {"day": -719162}),
        envelope("c", None, {"day": 3_000_000}),
        schema=TIMES,
    )
    assert [each["day"] for each in rows(chunk)] == [date(2024, 5, 1)] * 2 + [date(1, 1, 1)]
    assert bad(chunk)[0][0] == 9


def precise(unscaled: int) -> str:
    length = unscaled.bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


def test_text_in_a_decimal_column_needs_to_be_told() -> None:
    messages = [envelope("c", None, {"cost": each}) for each in ("12.50", precise(-1250), 7, 0.25)]
    numbers = [Decimal("7.00"), Decimal("0.25")]
    hint = "`cost`: text may be a number or base64: set `debezium.decimal.mode`"
    chunk = read(*messages, schema=TIMES)
    assert ([each["cost"] for each in rows(chunk)], reasons(chunk)) == (numbers, [hint, hint])
    chunk = read(*messages, schema=TIMES, debezium_decimal_mode="string")
    assert [each["cost"] for each in rows(chunk)] == [Decimal("12.50"), *numbers]
    chunk = read(*messages, schema=TIMES, debezium_decimal_mode="precise")
    assert [each["cost"] for each in rows(chunk)] == [Decimal("-12.50"), *numbers]


def test_the_schema_beside_an_envelope_tells_what_a_decimal_is() -> None:
    name = "org.apache.kafka.connect.data.Decimal"

    def message(value: Any, **about: Any) -> Any:
        return wrapped(envelope("c", None, {"cost": value}), cost=about)

    def scaled(value: int, scale: str) -> Any:
        return message(precise(value), type="bytes", name=name, parameters={"scale": scale})

    chunk = read(
        message("1234", type="string"),
        scaled(1234, "2"),
        scaled(5, "0"),
        scaled(-500, "4"),
        scaled(12345, "4"),
        scaled(10**12, "0"),
        message("!", type="bytes", name=name),
        message({"scale": 1, "value": "AQ=="}, type="struct"),
        schema=TIMES,
        debezium_decimal_mode="precise",
    )
    found = [each["cost"] for each in rows(chunk)]
    assert found == [Decimal("1234"), Decimal("12.34"), Decimal(5), Decimal("-0.05")]
    assert [offset // 3 for offset, _, _ in bad(chunk)] == [4, 5, 6, 7]


def test_its_options_go_with_this_format_alone() -> None:
    least = {"bootstrap.servers": "b:9092", "topic": "t", "group.id": "g"}
    given = {
        "debezium.time.unit": "us",
        "debezium.decimal.mode": "precise",
        "debezium.before": "required",
    }
    project = Path("/project")
    found = read_options({**least, **given, "format": "debezium-json"}, "here", project)
    chosen = (found.debezium_time_unit, found.debezium_decimal_mode, found.debezium_before)
    assert chosen == ("us", "precise", "required")
    for name, value in given.items():
        with pytest.raises(InvalidConfig, match=f"`{name}` is of no use to format json"):
            read_options({**least, name: value}, "here", project)
    with pytest.raises(InvalidConfig, match=r"`debezium.time.unit` must be one of ms, us, ns"):
        read_options({**least, "debezium.time.unit": "s"}, "here", project)
    keyed = {**least, "format": "debezium-json", "key.format": "json", "key.columns": "id"}
    with pytest.raises(InvalidConfig, match=r"`key.format` = json is of no use to format debe"):
        read_options(keyed, "here", project)


ROWS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        "at": st.none()
        | st.integers(-(10**13), 10**13)
        | st.sampled_from(["2024-05-01T12:00:00Z", "2024-05-01 12:00:00.5", "soon"]),
        "cost": st.none() | st.integers(0, 99) | st.sampled_from(["1.25", "x"]),
    },
)
ENVELOPES = st.none() | st.builds(
    lambda op, before, after, wrap, indent: json.dumps(
        wrapped(envelope(op, before, after)) if wrap else envelope(op, before, after),
        indent=indent,
    ).encode(),
    st.sampled_from(["c", "r", "u", "d", "t", "m", "z", None]),
    ROWS,
    ROWS,
    st.booleans(),
    st.sampled_from([None, 1]),
)
MIXED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("cost", pa.decimal128(10, 2)),
        WEIGHT,
    ]
)


def expected_row(image: dict[str, Any], weight: int) -> dict[str, Any]:
    """One row by the standard library. Raises ``ValueError`` if it is none."""
    at, cost = image.get("at"), image.get("cost")
    if isinstance(at, int):
        at = datetime(1970, 1, 1, tzinfo=UTC) + (at * (NOON.resolution * 1000))
    elif at is not None:
        at = datetime.fromisoformat(at).replace(tzinfo=UTC)
    if cost == "x":
        raise ValueError
    cost = Decimal(cost).quantize(Decimal("0.01")) if cost is not None else None
    return {
        "id": image.get("id"),
        "name": image.get("name"),
        "at": at,
        "cost": cost,
        "_weight": weight,
    }


def expected_rows(value: Value) -> list[dict[str, Any]] | None:
    """What a message becomes; None if it is bad."""
    if value is None:
        return []
    message = json.loads(value)
    message = message.get("payload", message)
    op, before, after = message["op"], message["before"], message["after"]
    if not _kinds_agree(before, after):
        return None
    if op == "m":
        return []
    wanted = {"c": "a", "r": "a", "d": "b", "u": "a" if before is None else "ba"}.get(op, "?")
    try:
        images = [{"b": (before, -1), "a": (after, 1)}[each] for each in wanted]
        return [expected_row(image, weight) for image, weight in images]
    except (KeyError, ValueError, AttributeError):
        return None


def _kinds_agree(before: Any, after: Any) -> bool:
    """A column that is text before and a number after is no column."""
    images = [image or {} for image in (before, after)]
    kinds = [{type(each.get(name)) for each in images} - {type(None)} for name in ("at", "cost")]
    return all(len(each) < 2 for each in kinds)


@given(st.lists(ENVELOPES, max_size=10), st.data())
def test_random_envelopes_become_what_they_say_in_any_cut(
    values: list[Value], data: st.DataObject
) -> None:
    given: dict[str, Any] = {"format": "debezium-json", "debezium_decimal_mode": "string"}
    whole = decode(MIXED, batch_of(values), **given)
    each_alone = [expected_rows(value) for value in values]
    assert rows(whole) == [row for found in each_alone for row in found or []]
    wrong = [(3 * i, values[i]) for i, found in enumerate(each_alone) if found is None]
    assert [each[:2] for each in bad(whole)] == wrong
    assert whole.skipped == sum(found == [] for found in each_alone)
    decoder = MessageDecoder(MIXED, options(**given), "s")
    batch = batch_of(values)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3))), len(values)]
    parts = [decoder.decode("t", 7, batch.slice(low, high)) for low, high in pairwise(edges)]
    assert [row for part in parts for row in rows(part)] == rows(whole)
    assert [each for part in parts for each in bad(part)] == bad(whole)

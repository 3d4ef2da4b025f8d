"""JSON messages, read back by the standard library and by the package's own source."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.json import json_encoder
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.records import Records
from tests.unit.sinks.formats import batches as cases

KEYS = [*cases.NUMBERS[:8], *cases.DECIMALS, cases.STRING, cases.BINARY, cases.DATE, *cases.TIMES]
ROWS = cases.batches(cases.kinds(cases.LEAVES, KEYS))


def encoded(batch: pa.RecordBatch) -> list[bytes]:
    found = json_encoder(batch.schema).encode(batch)
    found.validate(full=True)
    assert found.null_count == 0
    listed: list[bytes] = found.to_pylist()
    return listed


def one(array: pa.Array) -> list[str]:
    return [text.decode()[5:-1] for text in encoded(pa.record_batch({"x": array}))]


def value_of(found: Any, kind: pa.DataType) -> Any:
    """What a reader that knows the type makes of a JSON value."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if found is None:
        return None
    if types.is_map(kind):
        return [
            (key_of(key, kind.key_type), value_of(each, kind.item_type))
            for key, each in found.items()
        ]
    if types.is_list(kind):
        return [value_of(each, kind.value_type) for each in found]
    if types.is_struct(kind):
        assert [part.name for part in kind] == [*found]
        return {part.name: value_of(found[part.name], part.type) for part in kind}
    if types.is_floating(kind):
        assert isinstance(found, float)
        return float(np.float32(found)) if kind == pa.float32() else found
    if types.is_decimal(kind):
        return Decimal(found)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return base64.b64decode(found, validate=True)
    if types.is_date(kind):
        return date.fromisoformat(found)
    if types.is_timestamp(kind):
        assert found.endswith("Z") == (kind.tz is not None)
        return datetime.fromisoformat(found)
    if types.is_time(kind):
        return time.fromisoformat(found)
    if types.is_duration(kind):
        return timedelta(microseconds=found)
    assert isinstance(found, bool if types.is_boolean(kind) else int | str)
    return found


def key_of(key: str, kind: pa.DataType) -> Any:
    is_bare = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return value_of(json.loads(key) if is_bare else key, kind)


def without_odd_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_odd_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_odd_floats(each) for each in value]
    if isinstance(value, tuple):
        return (value[0], without_odd_floats(value[1]))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compact(text: bytes) -> str:
    return json.dumps(json.loads(text, parse_float=_Spelt), separators=(",", ":"))


class _Spelt(float):
    """A float that is written as it was read."""

    def __new__(cls, text: str) -> _Spelt:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


@settings(max_examples=100)
@given(ROWS)
def test_the_standard_library_reads_the_same_values(batch: pa.RecordBatch) -> None:
    kind = pa.struct(list(batch.schema))
    found = [value_of(json.loads(text), kind) for text in encoded(batch)]
    assert cases.spelt(found) == cases.spelt(without_odd_floats(batch.to_pylist()))


@settings(max_examples=50)
@given(cases.cuts(ROWS))
def test_a_message_does_not_depend_on_its_neighbours(cut: tuple[pa.RecordBatch, int]) -> None:
    cases.check_that_neighbours_do_not_matter(encoded, *cut)


@settings(max_examples=60)
@given(cases.batches(cases.kinds(cases.SPARK_LEAVES, [cases.STRING])))
def test_a_source_reads_what_the_sink_wrote(batch: pa.RecordBatch) -> None:
    texts = encoded(batch)
    lines = [text + b"\n" for text in texts]
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    starts = ends - np.array([len(line) for line in lines], np.int64)
    found = JsonDecoder(batch.schema).decode(
        Records(b"".join(lines), starts, ends, np.arange(len(lines), dtype=np.int64))
    )
    # A column that must not be null has no room for a NaN, which JSON cannot spell.
    expected = without_odd_floats(batch.to_pylist())
    bad = {each.position for each in found.bad}
    must = [field.name for field in batch.schema if not field.nullable]
    assert bad == {
        place for place, row in enumerate(expected) if any(row[name] is None for name in must)
    }
    kept = [row for place, row in enumerate(expected) if place not in bad]
    assert cases.spelt(found.rows.to_pylist()) == cases.spelt(kept)


def test_a_message_as_it_is_spelt() -> None:
    batch = pa.record_batch(
        {
            "id": pa.array([7, None], pa.int32()),
            'odd "name"\n': ['é"\\\n\x01/\x7f', None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "at": pa.array([0, None], pa.timestamp("us", "Europe/Berlin")),
            "tags": pa.array([["a", None], None]),
            "inner": pa.array(
                [{"x": 1.0, "y": {}}, None], pa.struct([("x", pa.float64()), ("y", pa.struct([]))])
            ),
            "map": pa.array([[(1, b"\xff")], None], pa.map_(pa.int8(), pa.binary())),
        }
    )
    assert [text.decode() for text in encoded(batch)] == [
        '{"id":7,"odd \\"name\\"\\n":"é\\"\\\\\\n\\u0001/\x7f","price":"1.50",'
        '"at":"1970-01-01 00:00:00.000000Z","tags":["a",null],"inner":{"x":1.0,"y":{}},'
        '"map":{"1":"/w=="}}',
        '{"id":null,"odd \\"name\\"\\n":null,"price":null,"at":null,"tags":null,"inner":null,'
        '"map":null}',
    ]


def test_numbers_as_they_are_spelt() -> None:
    odd = [1.0, -0.0, 0.1, 1e20, 1e-7, 5e-324, 123456789.125, math.nan, math.inf, -math.inf]
    assert one(pa.array(odd)) == (
        ["1.0", "-0.0", "0.1", "1e+20", "1e-7", "5e-324", "123456789.125", *["null"] * 3]
    )
    # As short as 32 bits allow, and not what they are in 64.
    assert one(pa.array([0.1, 16777216.0], pa.float32())) == ["0.1", "16777216.0"]
    assert one(pa.array([2**64 - 1], pa.uint64())) == ["18446744073709551615"]


def test_layouts_that_spark_does_not_use() -> None:
    assert [" ".join(one(array)) for array in cases.ODD_LAYOUTS] == [
        *["1.5 null -2.0", *['"1.5" null "-2.0"'] * 3],
        '"2024-01-31" null "1969-12-31"',
        '"1970-01-01 00:00:01" null "1969-12-31 23:59:59"',
        '"1970-01-01 00:00:00.000001000Z" null "1969-12-31 23:59:59.999999000Z"',
        '"00:00:00.000001000" null "00:00:00.000000000"',
        "1 null -1",
        "[1,2] null [3,4]",
        '["a"] null []',
        '{"a":"x"} null {"a":null}',
        '["a","b"] null ["a"]',
    ]


@pytest.mark.parametrize("length", range(8))
def test_base64_of_every_length(length: int) -> None:
    values = [bytes(range(250 - length, 250)), b"", None, bytes(length)]
    expected = [None if each is None else base64.b64encode(each).decode() for each in values]
    assert [json.loads(text) for text in one(pa.array(values, pa.binary()))] == expected


def test_a_null_list_that_hides_values_hides_them() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, False])
    )
    assert one(hidden) == ["null", "[3]"]


def test_a_struct_hides_what_stands_behind_its_null() -> None:
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2])], names=["a"], mask=pa.array([True, False])
    )
    assert one(hidden) == ["null", '{"a":2}']


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (
            pa.array([None, 2**62], pa.timestamp("us")),
            "column `x` has 1 values that have a year that is not between",
        ),
        (pa.array([0, 2**31 - 1], pa.date32()), "the first is in row 1 of 2"),
        (
            pa.array(
                [[{"a": [0]}], [{"a": [0, -(2**62)]}]],
                pa.list_(pa.struct([("a", pa.list_(pa.timestamp("us")))])),
            ),
            "column `x.element.a.element` has 1 values",
        ),
        (
            pa.array(
                [[("a", 1)], [("b", 1), ("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())
            ),
            "hold a key twice",
        ),
        (
            pa.array([[], [(math.nan, 1)]], pa.map_(pa.float64(), pa.int64())),
            "a key that JSON cannot spell",
        ),
    ],
    ids=lambda each: str(getattr(each, "type", ""))[:40],
)
def test_a_value_without_a_form_is_refused_with_its_place(array: pa.Array, told: str) -> None:
    with pytest.raises(Unwritable) as caught:
        one(array)
    assert told in str(caught.value)
    assert "the first is in row 1 of 2" in str(caught.value)


def test_what_is_not_utf8_is_refused() -> None:
    raw = pa.array([b"good", None, b"\xff\xfe", b"\xc3\xa9"], pa.binary())
    odd = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    with pytest.raises(
        Unwritable, match=r"`x` has 1 values that are no UTF-8 text; keep them BINARY"
    ):
        one(odd)
    assert one(odd.slice(3)) == ['"é"']


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.null())]),
        pa.schema([("x", pa.list_(pa.month_day_nano_interval()))]),
        pa.schema([("x", pa.map_(pa.struct([("a", pa.int8())]), pa.int8()))]),
        pa.schema([]),
        pa.schema([("x", pa.int8()), ("x", pa.int8())]),
        pa.schema([("x", pa.int8()), ("_weight", pa.int8())]),
    ],
    ids=str,
)
def test_columns_that_no_message_can_have_are_refused_at_once(schema: pa.Schema) -> None:
    with pytest.raises(Unwritable, match=r"view|columns"):
        json_encoder(schema)


def test_a_batch_of_other_columns_is_refused() -> None:
    encoder = json_encoder(pa.schema([("x", pa.int64())]))
    with pytest.raises(Unwritable, match="`x` is missing"):
        encoder.encode(pa.record_batch({"y": [1]}))
    with pytest.raises(Unwritable, match="`x` is of type string; it was int64"):
        encoder.encode(pa.record_batch({"x": ["1"]}))


def test_messages_are_compact() -> None:
    batch = pa.record_batch({"a": [[1, 2]], "b": [{"c": "d e"}], "f": [1.5]})
    (text,) = encoded(batch)
    assert text.decode() == compact(text)

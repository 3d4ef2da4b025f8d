"""Random batches of every type that a view can give, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

UTC_MICROS = pa.timestamp("us", tz="UTC")
# Quotes, control characters and what takes more than a byte come up more often than by chance.
TEXT = st.text(max_size=12) | st.text(st.sampled_from('ab"\\/\n\t\0\x1f\x7fé€😀\u2028'), max_size=8)
_EDGES = [
    0,
    1,
    -1,
    63,
    64,
    -64,
    -65,
    127,
    128,
    8191,
    8192,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
]


@dataclass(frozen=True)
class Kind:
    """A type, and values of it that are not null."""

    type: pa.DataType
    values: st.SearchStrategy[Any]


def whole(type_: pa.DataType) -> Kind:
    low = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
    high = low + 2**type_.bit_width - 1
    edges = st.sampled_from([edge for edge in _EDGES if low <= edge <= high])
    return Kind(type_, edges | st.integers(low, high))


def scaled(precision: int, scale: int) -> Kind:
    largest = 10**precision - 1

    def exact(number: int) -> Decimal:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    edges = [0, 1, -1, 127, 128, -128, -129, 32767, -32768, largest, -largest]
    near = st.sampled_from([edge for edge in edges if abs(edge) <= largest])
    return Kind(pa.decimal128(precision, scale), (near | st.integers(-largest, largest)).map(exact))


_NAIVE = st.datetimes()
STRING = Kind(pa.string(), TEXT)
BINARY = Kind(pa.binary(), st.binary(max_size=20))
NUMBERS = [
    Kind(pa.bool_(), st.booleans()),
    *map(whole, (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *map(whole, (pa.uint8(), pa.uint16(), pa.uint32())),
    Kind(pa.float32(), st.floats(width=32)),
    Kind(pa.float64(), st.floats()),
]
DECIMALS = [scaled(1, 0), scaled(9, 2), scaled(18, 18), scaled(38, 0), scaled(38, 10)]
DATE = Kind(pa.date32(), st.dates())
TIMES = [
    Kind(UTC_MICROS, _NAIVE.map(lambda moment: moment.replace(tzinfo=UTC))),
    Kind(pa.timestamp("us"), _NAIVE),
    Kind(
        pa.timestamp("ms"),
        _NAIVE.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
]
SPARK_LEAVES = [*NUMBERS[:5], *NUMBERS[8:], *DECIMALS, STRING, BINARY, DATE, *TIMES[:2]]
LEAVES = [
    *NUMBERS,
    *DECIMALS,
    STRING,
    Kind(pa.large_string(), TEXT),
    Kind(pa.string_view(), TEXT),
    Kind(pa.dictionary(pa.int8(), pa.string()), TEXT),
    BINARY,
    Kind(pa.binary(3), st.binary(min_size=3, max_size=3)),
    DATE,
    *TIMES,
    Kind(pa.time64("us"), st.times()),
    Kind(pa.time32("s"), st.times().map(lambda at: at.replace(microsecond=0))),
    Kind(
        pa.duration("us"),
        st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000)),
    ),
]


def lists(inner: st.SearchStrategy[Kind], *, nulls: bool) -> st.SearchStrategy[Kind]:
    def build(item: Kind) -> Kind:
        values = (st.none() | item.values) if nulls else item.values
        return Kind(pa.list_(item.type), st.lists(values, max_size=4))

    return inner.map(build)


def structs(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def build(items: list[Kind]) -> Kind:
        names = [f"f{number}" for number in range(len(items))]
        parts = zip(names, items, strict=True)
        return Kind(
            pa.struct([(name, item.type) for name, item in parts]),
            st.fixed_dictionaries(
                {n: st.none() | item.values for n, item in zip(names, items, strict=True)}
            ),
        )

    return st.lists(inner, min_size=1, max_size=3).map(build)


def maps(
    keys: Sequence[Kind], inner: st.SearchStrategy[Kind], *, nulls: bool
) -> st.SearchStrategy[Kind]:
    def build(key: Kind, item: Kind) -> Kind:
        values = (st.none() | item.values) if nulls else item.values
        pairs = st.dictionaries(key.values, values, max_size=3)
        return Kind(pa.map_(key.type, item.type), pairs.map(lambda each: [*each.items()]))

    return st.builds(build, st.sampled_from(keys), inner)


def kinds(
    leaves: Sequence[Kind], keys: Sequence[Kind], *, nulls: bool = True
) -> st.SearchStrategy[Kind]:
    """Types made of some leaves. Without ``nulls``, lists and maps hold none."""
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: lists(inner, nulls=nulls) | structs(inner) | maps(keys, inner, nulls=nulls),
        max_leaves=4,
    )


@st.composite
def batches(draw: st.DrawFn, kind: st.SearchStrategy[Kind]) -> pa.RecordBatch:
    """Rows, none at all included, that are often a slice of more."""
    columns = draw(st.lists(kind, min_size=1, max_size=4))
    count = draw(st.integers(0, 6))
    before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    arrays = {}
    for number, column in enumerate(columns):
        nullable = draw(st.booleans())
        values = st.none() | column.values if nullable else column.values
        size = before + count + behind
        listed = draw(st.lists(values, min_size=size, max_size=size))
        arrays[f"c{number}"] = (pa.array(listed, column.type), nullable)
    fields = [
        pa.field(name, array.type, nullable=nullable) for name, (array, nullable) in arrays.items()
    ]
    made = pa.RecordBatch.from_arrays(
        [each for each, _ in arrays.values()], schema=pa.schema(fields)
    )
    return made.slice(before, count)


def spelt(value: Any) -> str:
    """A value so that NaN is NaN, zero is not minus zero, and UTC is UTC however it is called."""
    text = repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
    return text.replace("<UTC>", "datetime.timezone.utc")


@st.composite
def cuts(draw: st.DrawFn, rows: st.SearchStrategy[pa.RecordBatch]) -> tuple[pa.RecordBatch, int]:
    """A batch, and a place to cut it at."""
    batch = draw(rows)
    return batch, draw(st.integers(0, batch.num_rows))


def check_that_neighbours_do_not_matter(
    encoded: Callable[[pa.RecordBatch], list[bytes]], batch: pa.RecordBatch, cut: int
) -> None:
    """A row is the same message in the whole batch, in a part of it and alone."""
    whole = encoded(batch)
    assert len(whole) == batch.num_rows
    assert encoded(batch.slice(0, cut)) + encoded(batch.slice(cut)) == whole
    assert [encoded(batch.slice(row, 1))[0] for row in range(batch.num_rows)] == whole


ODD_LAYOUTS = [
    pa.array([1.5, None, -2.0], pa.float16()),
    pa.array([Decimal("1.5"), None, Decimal("-2.0")], pa.decimal32(5, 1)),
    pa.array([Decimal("1.5"), None, Decimal("-2.0")], pa.decimal64(12, 1)),
    pa.array([Decimal("1.5"), None, Decimal("-2.0")], pa.decimal256(60, 1)),
    pa.array([date(2024, 1, 31), None, date(1969, 12, 31)], pa.date64()),
    pa.array([1, None, -1], pa.timestamp("s")),
    pa.array([1000, None, -1000], pa.timestamp("ns", "UTC")),
    pa.array([1000, None, 0], pa.time64("ns")),
    pa.array([1, None, -1], pa.duration("s")),
    pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    pa.array([["a"], None, []], pa.large_list(pa.string_view())),
    pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string_view())])),
    pa.array([["a", "b"], None, ["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
]

"""Random Avro types, values of them, and what a declared column makes of the values."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UTC_MICROS = pa.timestamp("us", tz="UTC")
MILLIS = st.integers(-62_000_000_000_000, 250_000_000_000_000)
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Case:
    """A type.

    Attributes:
        writer: The Avro type.
        kind: The declared type.
        values: What to write.
        expect: What the library reads into what the column holds.
    """

    writer: Any
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    expect: Callable[[Any], Any] = lambda value: value


def _unique(prefix: str) -> str:
    return f"{prefix}{next(_NUMBERS)}"


def _wall(stamp: datetime) -> datetime:
    return stamp.replace(tzinfo=None)


def _utc(stamp: datetime) -> datetime:
    return stamp.replace(tzinfo=UTC)


INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
SINGLE = st.floats(width=32)
TEXT = st.text(max_size=12)

PLAIN = [
    Case("boolean", pa.bool_(), st.booleans()),
    Case("int", pa.int32(), INT),
    Case("int", pa.int64(), INT),
    Case("int", pa.float64(), INT, float),
    Case("int", pa.decimal128(12, 2), INT, lambda value: Decimal(value).quantize(Decimal("0.01"))),
    Case("long", pa.int64(), LONG),
    Case("long", pa.int32(), INT),
    Case("long", pa.int8(), st.integers(-128, 127)),
    Case("long", pa.float64(), LONG, float),
    Case("long", pa.decimal128(38, 0), LONG, Decimal),
    Case("float", pa.float32(), SINGLE),
    Case("float", pa.float64(), SINGLE),
    Case("double", pa.float64(), st.floats()),
    Case("string", pa.string(), TEXT),
    Case("string", pa.binary(), TEXT, str.encode),
    Case("bytes", pa.binary(), st.binary(max_size=20)),
    Case("bytes", pa.string(), TEXT.map(str.encode), bytes.decode),
    Case({"type": "int", "logicalType": "date"}, pa.date32(), st.integers(-700_000, 2_900_000)),
    Case({"type": "long", "logicalType": "timestamp-millis"}, UTC_MICROS, MILLIS),
    Case(
        {"type": "long", "logicalType": "timestamp-micros"},
        UTC_MICROS,
        MILLIS.map(lambda value: value * 1000 + 7),
    ),
    Case(
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.timestamp("us"),
        MILLIS,
        _wall,
    ),
    Case({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), MILLIS),
    Case({"type": "long", "logicalType": "local-timestamp-micros"}, UTC_MICROS, MILLIS, _utc),
    Case(
        {"type": "long", "logicalType": "timestamp-millis"},
        pa.int64(),
        MILLIS,
        lambda value: (value - EPOCH) // timedelta(milliseconds=1),
    ),
    Case({"type": "string", "logicalType": "uuid"}, pa.string(), st.uuids(), str),
]


@st.composite
def enums(draw: st.DrawFn) -> Case:
    symbols = draw(st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=5, unique=True))
    writer = {"type": "enum", "name": _unique("E"), "symbols": symbols}
    return Case(writer, pa.string(), st.sampled_from(symbols))


@st.composite
def fixeds(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 20))
    writer = {"type": "fixed", "name": _unique("F"), "size": size}
    return Case(writer, pa.binary(), st.binary(min_size=size, max_size=size))


@st.composite
def decimals(draw: st.DrawFn) -> Case:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    # More room behind the point, and as much before it.
    more = draw(st.integers(0, 38 - precision))
    kind = pa.decimal128(precision + more, scale + more)
    writer: dict[str, Any] = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.booleans()):
        writer["type"] = "bytes"
    else:
        writer.update(type="fixed", name=_unique("D"), size=draw(st.integers(16, 24)))
    largest = 10**precision - 1
    values = st.integers(-largest, largest).map(lambda x: _scaled(x, scale))
    return Case(writer, kind, values, lambda value: _rescaled(value, scale + more))


def _scaled(unscaled: int, scale: int) -> Decimal:
    """Exact, unlike arithmetic with as many digits as the context allows."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _rescaled(value: Decimal, scale: int) -> Decimal:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return _scaled(-number if sign else number, scale)


def _uuid_of_16_bytes() -> Case:
    writer = {"type": "fixed", "name": _unique("U"), "size": 16, "logicalType": "uuid"}
    return Case(writer, pa.string(), st.binary(min_size=16, max_size=16), _uuid_text)


def _uuid_text(value: bytes | uuid.UUID) -> str:
    return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value)


def optional(inner: Case) -> st.SearchStrategy[Case]:
    def build(null_first: bool) -> Case:
        branches = ["null", inner.writer] if null_first else [inner.writer, "null"]
        return Case(
            branches,
            inner.kind,
            st.none() | inner.values,
            lambda value: None if value is None else inner.expect(value),
        )

    return st.booleans().map(build)


@st.composite
def unions(draw: st.DrawFn) -> Case:
    """A general union into a column that can hold every branch."""
    branches = draw(st.permutations(["null", "string", "bytes"]))
    return Case(
        branches,
        pa.binary(),
        st.none() | TEXT | st.binary(max_size=5),
        lambda value: value.encode() if isinstance(value, str) else value,
    )


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    item = draw(inner)
    return Case(
        {"type": "array", "items": item.writer},
        pa.list_(pa.field("element", item.kind)),
        st.lists(item.values, max_size=4),
        lambda value: [item.expect(each) for each in value],
    )


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Case]) -> Case:
    item = draw(inner)
    return Case(
        {"type": "map", "values": item.writer},
        pa.map_(pa.string(), item.kind),
        st.dictionaries(TEXT, item.values, max_size=3),
        lambda value: [(key, item.expect(each)) for key, each in value.items()],
    )


@st.composite
def records(draw: st.DrawFn, inner: st.SearchStrategy[Case], least: int = 1) -> Case:
    """A record of which some fields are declared, in another order, besides one that it lacks."""
    cases = draw(st.lists(inner, min_size=least, max_size=4))
    fields = {f"f{number}": each for number, each in enumerate(cases)}
    declared = draw(st.permutations(sorted(fields)))
    declared = declared[: draw(st.integers(1, len(declared)))]
    renamed = draw(st.sets(st.sampled_from(declared)))
    names = {name: f"was_{name}" if name in renamed else name for name in declared}
    writer = {
        "type": "record",
        "name": _unique("R"),
        "fields": [
            {"name": name, "type": each.writer}
            | ({"aliases": ["other", names[name]]} if name in renamed else {})
            for name, each in fields.items()
        ],
    }
    kinds = [pa.field(names[name], fields[name].kind) for name in declared]
    kinds.append(pa.field("lacking", draw(st.sampled_from([pa.int32(), pa.list_(pa.string())]))))

    def expect(value: dict[str, Any]) -> dict[str, Any]:
        found = {names[name]: fields[name].expect(value[name]) for name in declared}
        return {**found, "lacking": None}

    return Case(
        writer,
        pa.struct(kinds),
        st.fixed_dictionaries({name: each.values for name, each in fields.items()}),
        expect,
    )


LEAVES = (
    st.sampled_from(PLAIN)
    | enums()
    | fixeds()
    | decimals()
    | st.builds(_uuid_of_16_bytes)
    | unions()
)


def _is_union(case: Case) -> bool:
    return isinstance(case.writer, list)


TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        arrays(inner)
        | maps(inner)
        | records(inner)
        | inner.filter(lambda case: not _is_union(case)).flatmap(optional)
    ),
    max_leaves=5,
)
ROOTS = records(TYPES)

"""Tables of any values of any type, for a server that is to keep them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Columns = Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any]]]

NAIVE = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001
ZONED = NAIVE.map(lambda each: each.replace(tzinfo=UTC))


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return (
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if signed
        else st.integers(0, 2**bits - 1)
    )


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    whole = st.integers(-largest, largest) | st.sampled_from([0, 1, -1, largest, -largest])
    return whole.map(
        lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
    )


def columns_of(text: st.SearchStrategy[str], **own: tuple[pa.DataType, Any]) -> Columns:
    """What every server keeps, and what one of them keeps in a range of its own.

    Args:
        text: Texts that the server can hold.
        own: Columns of the server's own, by their names.
    """
    return {
        **{
            f"{'' if signed else 'u'}int{bits}": (
                getattr(pa, f"{'' if signed else 'u'}int{bits}")(),
                integers(bits, signed=signed),
            )
            for bits in (8, 16, 32, 64)
            for signed in (True, False)
        },
        "short decimal": (pa.decimal128(7, 2), decimals(7, 2)),
        "decimal": (pa.decimal128(18, 5), decimals(18, 5)),
        "long decimal": (pa.decimal128(38, 19), decimals(38, 19)),
        "fraction": (pa.decimal128(6, 6), decimals(6, 6)),
        "bool": (pa.bool_(), st.booleans()),
        "string": (pa.string(), text),
        "large string": (pa.large_string(), text),
        "string view": (pa.string_view(), text),
        "binary": (pa.binary(), st.binary(max_size=20)),
        "fixed binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
        "date": (pa.date32(), st.dates()),
        "timestamp": (pa.timestamp("us"), NAIVE),
        "seconds": (pa.timestamp("s"), NAIVE.map(lambda each: each.replace(microsecond=0))),
        "time": (pa.time64("us"), st.times()),
        "list": (
            pa.list_(pa.int64()),
            st.lists(integers(64, signed=True) | st.none(), max_size=4),
        ),
        "struct": (
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
            st.fixed_dictionaries({"a": integers(32, signed=True), "b": text | st.none()}),
        ),
        **own,
    }


@st.composite
def tables(draw: st.DrawFn, columns: Columns) -> pa.Table:
    """A few rows of some of the columns, and their numbers."""
    count = draw(st.integers(1, 12))
    chosen = draw(st.lists(st.sampled_from([*columns]), min_size=1, unique=True))
    optional = draw(st.booleans())
    found = {"row": pa.array(range(count))}
    for name in chosen:
        kind, values = columns[name]
        values = values | st.none() if optional else values
        drawn = draw(st.lists(values, min_size=count, max_size=count))
        found[name] = pa.array(drawn, kind)
    return pa.table(found)


def check_digits(field: pa.Field, read: list[Decimal | None]) -> None:
    """A decimal comes back with as many digits as its column has."""
    if pa.types.is_decimal(field.type):
        digits = [each.as_tuple().exponent for each in read if each is not None]
        assert {*digits} <= {-field.type.scale}

"""Converts PostgreSQL's texts of values to Arrow columns, and checks declared types.

The session that reads changes is set to ISO dates, UTC and hexadecimal bytea, see ``database``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats.binary.assemble import list_column, spread
from laminar_dagster.sources.formats.columns import BadRows, convert
from laminar_dagster.sources.postgres.array_literals import packed, split_arrays

_HEX: Final = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_HEX[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)

_BOOLEAN, _BYTEA, _TEXT = "boolean", "bytea", "text"
_NAMES: Final = {
    16: _BOOLEAN, 17: _BYTEA, 20: "bigint", 21: "smallint", 23: "integer", 25: _TEXT,
    700: "real", 701: "double precision", 1700: "numeric", 1042: "character",
    1043: "character varying", 19: "name", 1082: "date", 1083: "time", 1266: "timetz",
    1114: "timestamp", 1184: "timestamptz", 1186: "interval", 2950: "uuid", 114: "json",
    3802: "jsonb", 869: "inet", 650: "cidr", 829: "macaddr", 1560: "bit", 1562: "varbit",
    790: "money", 142: "xml", 26: "oid",
}  # fmt: skip
_ARRAYS: Final = {
    1000: 16, 1001: 17, 1016: 20, 1005: 21, 1007: 23, 1009: 25, 1021: 700, 1022: 701, 1231: 1700,
    1014: 1042, 1015: 1043, 1182: 1082, 1183: 1083, 1115: 1114, 1185: 1184, 2951: 2950, 199: 114,
    3807: 3802, 1041: 869,
}  # fmt: skip
_TESTS: Final[dict[int, Callable[[pa.DataType], bool]]] = {
    16: pa.types.is_boolean,
    17: pa.types.is_binary,
    26: pa.types.is_int64,
    700: pa.types.is_floating,
    701: pa.types.is_float64,
    1082: pa.types.is_date,
    1114: pa.types.is_timestamp,
    1184: lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
    1700: lambda kind: pa.types.is_decimal(kind) or pa.types.is_float64(kind),
}
# The bits of an integer type.
_NUMBERS: Final = {21: 16, 23: 32, 20: 64}


def type_name(oid: int) -> str:
    """The name of a built-in type; other types are shown by their id."""
    if oid in _ARRAYS:
        return f"{_NAMES[_ARRAYS[oid]]}[]"
    return _NAMES.get(oid, f"type {oid}")


def suits(oid: int, kind: pa.DataType) -> bool:
    """Whether a declared type can hold every value of a column's type.

    Types that are not built in, such as enums and domains, are accepted here and checked value by
    value.
    """
    if pa.types.is_string(kind) or (oid not in _NAMES and oid not in _ARRAYS):
        return True
    if oid in _ARRAYS:
        return pa.types.is_list(kind) and suits(_ARRAYS[oid], kind.value_type)
    if oid in _NUMBERS:
        if pa.types.is_integer(kind):
            return bool(kind.bit_width >= _NUMBERS[oid])
        return bool(pa.types.is_decimal(kind) or (pa.types.is_float64(kind) and oid != 20))
    test = _TESTS.get(oid)
    return test is not None and bool(test(kind))


def converted(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, BadRows]:
    """Convert the texts of a column.

    Returns:
        The column, null where the value does not fit, and the reason for each such row.
    """
    if pa.types.is_string(kind):
        return texts, {}
    if pa.types.is_boolean(kind):
        return _booleans(texts)
    if pa.types.is_binary(kind):
        return _bytes(texts)
    if pa.types.is_list(kind):
        return _lists(texts, kind)
    return convert(pa.chunked_array([texts]), kind)


def _booleans(texts: pa.StringArray) -> tuple[pa.Array, BadRows]:
    found = pc.equal(texts, "t")
    odd = pc.invert(pc.or_(found, pc.equal(texts, "f"))).fill_null(False)
    if not pc.any(odd).as_py():
        return found, {}
    rows = np.flatnonzero(odd.to_numpy(zero_copy_only=False)).tolist()
    return pc.if_else(odd, None, found), dict.fromkeys(rows, "it is no boolean")


def _bytes(texts: pa.StringArray) -> tuple[pa.Array, BadRows]:
    r"""Decode texts such as ``\x00ff``, all digits of the column at once."""
    is_hex = pc.starts_with(texts, r"\x").fill_null(False)
    even = pc.equal(pc.bit_wise_and(pc.binary_length(texts), 1), 0).fill_null(False)
    good = np.flatnonzero(pc.and_(is_hex, even).to_numpy(zero_copy_only=False))
    spelled, places = packed(texts.take(pa.array(good)))
    # A value has two digits a byte, after the two letters of ``\x``.
    offsets = places // 2 - np.arange(len(good) + 1)
    is_digit = np.ones(len(spelled), np.bool_)
    is_digit[places[:-1]] = is_digit[places[:-1] + 1] = False
    halves = _HEX[np.frombuffer(spelled, np.uint8)[is_digit]]
    found = (halves[0::2] << 4) | (halves[1::2] & 15)
    wrong = np.zeros(len(found) + 1, np.int64)
    np.cumsum((halves[0::2] == 255) | (halves[1::2] == 255), out=wrong[1:])
    is_odd = wrong[offsets[1:]] > wrong[offsets[:-1]]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(found.tobytes())]
    values = pa.Array.from_buffers(pa.large_binary(), len(good), buffers).cast(pa.binary())
    column = spread(values.filter(pa.array(~is_odd)), good[~is_odd], len(texts))
    is_lost = column.is_null().to_numpy(zero_copy_only=False)
    is_lost &= texts.is_valid().to_numpy(zero_copy_only=False)
    return column, dict.fromkeys(np.flatnonzero(is_lost).tolist(), "it is no bytea in hex")


def _lists(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, BadRows]:
    found = split_arrays(texts)
    values, wrong = converted(found.elements, kind.value_type)
    bad = dict(found.bad)
    if wrong:
        rows = np.repeat(np.arange(len(texts)), found.counts)
        for element, reason in wrong.items():
            bad.setdefault(int(rows[element]), f"an element: {reason}")
    column = list_column(found.counts, values, kind)
    is_null = texts.is_null().to_numpy(zero_copy_only=False)
    is_null = is_null.copy()
    is_null[list(bad)] = True
    if is_null.any():
        column = pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=pa.array(is_null))
    return column, bad

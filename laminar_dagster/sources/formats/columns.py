"""Converts parsed columns to declared types, where Arrow's parsers cannot do it themselves.

A parser reads a column as its *wire* type; ``convert`` casts it to the declared type, and returns
the rows whose value does not fit.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.formats import decimals

_ZONE: Final = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_BEYOND_MICROS: Final = r"(\.\d{6})\d+"
# Look for a zone only after the date, whose own hyphens look like an offset.
_DATE_LENGTH: Final = 10


# A failing range is split into this many: a lone bad value then costs two conversions of all.
FAN_OUT: Final = 16

BadRows = dict[int, str]

# The types' names in SQL.
FLOATS: Final = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}


class Unfit(ValueError):
    """A value that does not fit its column."""


def wire_type(kind: pa.DataType, *, times_as_text: bool) -> pa.DataType:
    """The Arrow type to ask the parser for.

    Args:
        kind: The declared type.
        times_as_text: Read timestamps as text, to accept formats that the parser refuses.
    """
    if pa.types.is_date32(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.string() if times_as_text else kind
    if pa.types.is_decimal(kind):
        return decimals.wire_type(kind)
    if pa.types.is_map(kind):
        value = wire_type(kind.item_type, times_as_text=times_as_text)
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", value)])
        return pa.list_(pa.field("element", pair))
    if pa.types.is_list(kind):
        element = wire_type(kind.value_type, times_as_text=times_as_text)
        return pa.list_(pa.field("element", element))
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                pa.field(each.name, wire_type(each.type, times_as_text=times_as_text))
                for each in kind
            ]
        )
    return kind


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or a type nested in it, satisfies a test."""
    if test(kind):
        return True
    if pa.types.is_map(kind):
        return holds(kind.key_type, test) or holds(kind.item_type, test)
    if pa.types.is_list(kind):
        return holds(kind.value_type, test)
    return pa.types.is_struct(kind) and any(holds(each.type, test) for each in kind)


def convert(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.Array, BadRows]:
    """Convert a column from its wire type to the declared type.

    Returns:
        The column, null where the value does not fit, and the reason for each such row. Whether a
        value fits, and the reason, do not depend on its neighbours.
    """
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if array.type == kind and not holds(kind, pa.types.is_decimal):
        return array, {}
    bad: BadRows = {}
    parts: list[pa.Array] = []
    stack = [(0, len(array))]
    while stack:
        low, high = stack.pop()
        part = array if high - low == len(array) else _compact(array, low, high)
        try:
            parts.append(finish(part, kind))
        except (pa.ArrowException, ValueError) as error:
            if high - low == 1:
                bad[low] = str(error).strip() or type(error).__name__
                parts.append(pa.nulls(1, kind))
            else:
                cuts = [*range(low, high, max(1, (high - low) // FAN_OUT)), high]
                stack.extend(reversed(list(pairwise(cuts))))
    return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), bad


def _compact(array: pa.Array, low: int, high: int) -> pa.Array:
    """Copy a range: a slice of a nested array would still convert all its values."""
    return array.take(pa.array(np.arange(low, high)))


def finish(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column from its wire type to the declared type.

    Raises:
        ValueError: A value does not fit.
    """
    if pa.types.is_decimal(kind) and array.type == kind:
        # The JSON parser does not check the digits against the precision after scaling them.
        array.validate(full=True)
        return array
    if pa.types.is_decimal(array.type):
        return pc.cast(array, kind)
    if array.type == kind and not holds(kind, pa.types.is_decimal):
        return array
    if pa.types.is_map(kind):
        pairs = array.values
        keys = _from_text(pairs.field(0), kind.key_type)
        items = finish(pairs.field(1), kind.item_type)
        return _masked_map(array, keys, items, kind)
    if pa.types.is_list(kind):
        values = finish(array.values, kind.value_type)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    if pa.types.is_struct(kind):
        children = [finish(array.field(place), each.type) for place, each in enumerate(kind)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    return _from_text(array, kind)


def _from_text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return array
    if pa.types.is_timestamp(kind):
        return _timestamps(array, kind)
    if pa.types.is_binary(kind):
        return pa.array([_base64(each) for each in array.to_pylist()], pa.binary())
    if pa.types.is_floating(kind):
        # Cast directly, not by way of DOUBLE: rounding twice may not give the nearest number.
        found = _cast_text(array, kind)
        spelt = pc.match_substring(array, "inf", ignore_case=True)
        if pc.any(pc.and_(pc.is_inf(found), pc.invert(spelt))).as_py():
            raise Unfit(f"the number is too large for {FLOATS[kind]}")
        return found
    if pa.types.is_decimal(kind):
        return decimals.from_text(array, kind)
    return _cast_text(array, kind)


def _cast_text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(array, kind)
    except ValueError:
        return pc.cast(pc.ascii_trim_whitespace(array), kind)


def _timestamps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse ISO 8601, in UTC unless it has a zone; digits after microseconds are cut off."""
    text = pc.replace_substring_regex(array, _BEYOND_MICROS, r"\1")
    zoned = pc.match_substring_regex(pc.utf8_slice_codeunits(text, _DATE_LENGTH), _ZONE)
    plain = pa.timestamp("us")
    with_zone = pc.cast(pc.if_else(zoned, text, None), pa.timestamp("us", tz="UTC"))
    without = pc.cast(pc.if_else(zoned, None, text), plain)
    return pc.coalesce(with_zone.cast(plain), without).cast(kind)


def _base64(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except binascii.Error as error:
        raise Unfit(f"not base64: {error}") from None


def _masked_map(array: pa.Array, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)

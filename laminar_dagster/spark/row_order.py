"""Order and equality of rows as in SQL: sorting, key codes, comparison with the previous row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.models.ordering import one_array, ranks

Booleans = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]

# From here on combined key codes could overflow 64 bits: compress them first.
_TOO_MANY: Final = 2**62
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """A column of an ORDER BY."""

    name: str
    descending: bool
    nulls_first: bool


def in_order(
    rows: pa.Table, first: Sequence[Whole], order: Sequence[Place], last: Sequence[str]
) -> Whole:
    """The indices that sort rows as ORDER BY does, nulls and NaN included. The sort is stable.

    Leading numeric columns are sorted first, all others only within their ties: comparing rows by
    several columns, strings above all, is many times slower.

    Args:
        rows: The rows to sort.
        first: Integers to sort by before ``order``, ascending.
        order: The columns to sort by.
        last: Columns that break ties, ascending.
    """
    numbers, left = list(first), list(order)
    while left:
        found = _numbers(rows.column(left[0].name), left[0])
        if found is None:
            break
        numbers += found
        left = left[1:]
    places: Whole = by_numbers(numbers) if numbers else np.arange(rows.num_rows)
    same = np.ones(max(0, rows.num_rows - 1), np.bool_)
    for each in numbers:
        ordered = each[places]
        same &= ordered[1:] == ordered[:-1]
    if not same.any() or not (left or last):
        return places
    open_still = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
    runs = np.cumsum(np.insert(~same, 0, True))[open_still]
    compared = dict.fromkeys([*(each.name for each in left), *last])
    some = rows.select(list(compared)).take(pa.array(places[open_still]))
    places[open_still] = places[open_still][_sorted_within(some, runs, left, last)]
    return places


def by_numbers(numbers: Sequence[Whole]) -> Whole:
    """The indices that sort rows by several integers, the first most significant. Stable.

    Integers that fit into 64 bits together are packed into one, which halves the time.
    """
    packed = np.zeros(len(numbers[0]), np.int64)
    limit = 1
    for each in numbers:
        least, most = int(each.min(initial=0)), int(each.max(initial=0))
        width = most - least + 1
        limit *= width
        if limit > _LARGEST:
            found: Whole = np.lexsort(numbers[::-1])
            return found
        packed = packed * width + (each - least)
    return np.argsort(packed, kind="stable")


def sorted_by(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows sorted by some columns, ascending, nulls last. The sort is stable.

    Values without an order, such as lists, are only grouped: equal ones are adjacent.
    """
    numbers: list[Whole] = []
    for name in names:
        values = rows.column(name)
        found = None
        if _is_text(values.type):
            found = [ranks(values)]
        elif pa.types.is_nested(values.type):
            found = [value_codes(values)]
        elif not pa.types.is_floating(values.type):
            found = _numbers(values, Place(name, descending=False, nulls_first=False))
        if found is None:
            return rows.take(_sorted_by_arrow(rows, names))
        numbers += found
    return rows.take(pa.array(by_numbers(numbers))) if numbers else rows


def _sorted_by_arrow(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    columns = {}
    for number, name in enumerate(names):
        values = rows.column(name)
        is_nested = pa.types.is_nested(values.type)
        columns[str(number)] = pa.array(value_codes(values)) if is_nested else values
    keys = [(name, "ascending") for name in columns]
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _is_text(kind: pa.DataType) -> bool:
    """Whether values are strings or binary."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _numbers(values: pa.ChunkedArray, place: Place) -> list[Whole] | None:
    """Integers that sort like the values of a column; None for types that have none."""
    plain = whole_numbers(values)
    if plain is None:
        return None
    # Inverting all bits reverses the order, without overflow.
    found = [~plain if place.descending else plain]
    if values.null_count:
        is_null = values.is_null().to_numpy().astype(np.int64)
        found.insert(0, -is_null if place.nulls_first else is_null)
        found[1] = np.where(is_null, 0, found[1])
    return found


def _sorted_within(
    rows: pa.Table, runs: Whole, order: Sequence[Place], last: Sequence[str]
) -> Whole:
    """The indices that sort rows within their runs, which are numbered in order."""
    columns: dict[str, Any] = {"run": pa.array(runs)}
    keys = [("run", "ascending")]
    for number, each in enumerate(order):
        values = rows.column(each.name)
        columns[f"null{number}"] = pc.cast(values.is_null(), pa.int8())
        # In SQL NaN is larger than all numbers; Arrow sorts it with the nulls.
        is_float = pa.types.is_floating(values.type)
        columns[f"plain{number}"] = ordered_bits(values) if is_float else values
        keys.append((f"null{number}", "descending" if each.nulls_first else "ascending"))
        keys.append((f"plain{number}", "descending" if each.descending else "ascending"))
    for number, name in enumerate(last):
        columns[f"last{number}"] = rows.column(name)
        keys.append((f"last{number}", "ascending"))
    found: Whole = pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy().astype(np.int64)
    return found


def whole_numbers(values: pa.ChunkedArray) -> Whole | None:
    """Integers that compare like the values; None for other types. Nulls get an arbitrary one."""
    kind = values.type
    if pa.types.is_floating(kind):
        values = ordered_bits(values)
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif not (pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind)):
        return None
    found: Whole = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return found


def key_codes(rows: pa.Table, names: Sequence[str]) -> Whole:
    """An integer code for each row's values in some columns, equal for equal values.

    Nulls are equal to each other, and so are NaNs.
    """
    codes = np.zeros(rows.num_rows, np.int64)
    limit = 1
    for name in names:
        found = value_codes(rows.column(name))
        width = int(found.max(initial=0)) + 1
        if limit * width >= _TOO_MANY:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
            limit = rows.num_rows
        codes = codes * width + found
        limit *= width
    return codes


def value_codes(values: pa.ChunkedArray | pa.Array) -> Whole:
    """An integer code for each value, equal for equal values; nulls are equal, and so are NaNs.

    Nested values are coded from the inside out: a list is represented by the bytes of the codes of
    its items.
    """
    array = one_array(values) if isinstance(values, pa.ChunkedArray) else values
    kind = array.type
    if pa.types.is_floating(kind):
        array = one_array(ordered_bits(pa.chunked_array([array])))
    elif pa.types.is_struct(kind):
        fields = [value_codes(each) for each in array.flatten()]
        lengths = np.full(len(array), len(fields), np.int64)
        array = _sequences(np.ravel(np.column_stack(fields)), lengths, array)
    elif pa.types.is_nested(kind):
        starts, lengths = _extents(array)
        first = np.cumsum(lengths) - lengths
        places = np.repeat(starts - first, lengths) + np.arange(int(lengths.sum()))
        array = _sequences(value_codes(array.values)[places], lengths, array)
    codes: Whole = array.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return codes.astype(np.int64)


def _extents(lists: pa.Array) -> tuple[Whole, Whole]:
    """The start and the number of the items of each list or map; null has 0 items."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    is_there = lists.is_valid().to_numpy(zero_copy_only=False)
    return offsets[:-1], np.diff(offsets) * is_there


def _sequences(codes: Whole, lengths: Whole, values: pa.Array) -> pa.Array:
    """The codes of the items of each value as one binary value; null where the value is null."""
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))) * codes.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(codes))]
    found = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), buffers)
    nothing = pa.scalar(None, pa.large_binary())
    return pc.if_else(values.is_valid(), found, nothing) if values.null_count else found


def differs_from_previous(rows: pa.Table, names: Sequence[str]) -> Booleans:
    """A mask of the rows that differ from the row before them in some column; the first one does.

    Nulls are equal to each other, and so are NaNs.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    if not rows.num_rows:
        return found
    found[0] = True
    for name in names:
        found[1:] |= _changed(rows.column(name))
    return found


def _changed(column: pa.ChunkedArray) -> Booleans:
    if pa.types.is_nested(column.type):
        codes = value_codes(column)
        others: Booleans = codes[1:] != codes[:-1]
        return others
    values = ordered_bits(column) if pa.types.is_floating(column.type) else column
    array = one_array(values)
    before, after = array.slice(0, len(array) - 1), array.slice(1)
    other = pc.fill_null(pc.not_equal(before, after), False)
    one_is_null = pc.xor(before.is_null(), after.is_null())
    found: Booleans = pc.or_(other, one_is_null).to_numpy(zero_copy_only=False)
    return found


# --- floats in the order of SQL, in which NaN is the largest ------------------------------------


def ordered_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers that compare like the floats do in SQL. Arrow's own MIN and MAX ignore NaN."""
    valid = pc.is_valid(values)
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    # All NaNs get the same bits, and adding 0.0 makes 0.0 of -0.0.
    floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
    bits = floats.view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.chunked_array([pa.array(ordered, pa.int64(), mask=mask)])


def from_ordered_bits(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert the integers of ``ordered_bits`` back to floats."""
    valid = pc.is_valid(values)
    ordered = pc.fill_null(values, 0).to_numpy()
    bits = np.where(ordered < 0, ordered ^ np.int64(2**63 - 1), ordered)
    mask = ~valid.to_numpy(zero_copy_only=False) if values.null_count else None
    floats = pa.array(bits.view(np.float64), pa.float64(), mask=mask, from_pandas=False)
    return pa.chunked_array([floats]).cast(kind)

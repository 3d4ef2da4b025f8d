"""Compares the rows of two tables as multisets: which rows only one of them has, and how often.

Values are compared exactly, floats bit by bit. Columns of different types are comparable if the
types are of one family, and values can be cast from one to the other without loss: 1 as a wider
integer is the same value, the text "1" is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FLOAT_BITS: Final = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_FAMILIES: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    pa.types.is_date,
    pa.types.is_time,
)
_OLD: Final = "old"
_NEW: Final = "new"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The rows that only one of two tables has, each in the order of its table."""

    only_old: pa.Table
    only_new: pa.Table


def compare_rows(old: pa.Table, new: pa.Table) -> RowDifference:
    """The rows to remove from a table, and to add to it, to get another one."""
    alike = as_type_of(old, new.schema)
    if alike is None:
        return RowDifference(old, new)
    both = pa.concat_tables([_sided(alike, _OLD), _sided(new, _NEW)], promote_options="default")
    columns = [name for name in both.column_names if name not in (_OLD, _NEW)]
    counted = both.group_by(columns, use_threads=False).aggregate(
        [(_OLD, "count"), (_NEW, "count"), (_OLD, "min"), (_NEW, "min")]
    )
    surplus = pc.subtract(counted.column("old_count"), counted.column("new_count")).to_numpy()
    return RowDifference(
        _repeated(old, counted.column("old_min"), surplus),
        _repeated(new, counted.column("new_min"), -surplus),
    )


def as_type_of(table: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The table cast to a schema; None when its columns or types are not comparable."""
    if sorted(table.column_names) != sorted(schema.names) or len(set(schema.names)) != len(schema):
        return None
    if any(not _is_akin(table.schema.field(each.name).type, each.type) for each in schema):
        return None
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError):
        return None


def _is_akin(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types can be equal."""
    if one == other or pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if pa.types.is_dictionary(one):
        return _is_akin(one.value_type, other)
    if pa.types.is_dictionary(other):
        return _is_akin(one, other.value_type)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        # An instant, with a time zone, never equals a local time, without one.
        return bool((one.tz is None) == (other.tz is None))
    if pa.types.is_nested(one) and pa.types.is_nested(other):
        return bool(one.id == other.id) and _are_akin(one, other)
    return any(is_one(one) and is_one(other) for is_one in _FAMILIES)


def _are_akin(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether the fields of two nested types are; only in structs do the fields' names matter."""
    if one.num_fields != other.num_fields:
        return False
    pairs = [(one.field(place), other.field(place)) for place in range(one.num_fields)]
    if pa.types.is_struct(one) and any(mine.name != theirs.name for mine, theirs in pairs):
        return False
    return all(_is_akin(mine.type, theirs.type) for mine, theirs in pairs)


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose values are equal if and only if those of the original are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return comparable(column.cast(kind.value_type))
    if kind in _FLOAT_BITS:
        chunks = [chunk.view(_FLOAT_BITS[kind]) for chunk in column.chunks]
        return pa.chunked_array(chunks, _FLOAT_BITS[kind])
    if pa.types.is_nested(kind):
        texts = [None if value is None else _text(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_null(kind):
        return column.cast(pa.int8())
    return column


def is_same(old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether two columns of one type have equal values, or are both null, row by row."""
    old, new = comparable(old), comparable(new)
    neither = pc.and_(pc.is_null(old), pc.is_null(new))
    return pc.or_(pc.fill_null(pc.equal(old, new), False), neither)


def _sided(table: pa.Table, side: str) -> pa.Table:
    """The comparable columns, named by position, and each row's number in its side's column."""
    columns = {f"c{place}": comparable(each) for place, each in enumerate(table.columns)}
    numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
    nothing = pa.nulls(table.num_rows, pa.int64())
    sides = {each: numbers if each == side else nothing for each in (_OLD, _NEW)}
    return pa.table({**columns, **sides})


def _repeated(table: pa.Table, places: pa.ChunkedArray, times: Any) -> pa.Table:
    wanted = times > 0
    found = places.to_numpy()[wanted].astype(np.int64)
    return table.take(pa.array(np.sort(np.repeat(found, times[wanted]))))


def _text(value: Any) -> str:
    return json.dumps(value, default=repr, ensure_ascii=False)

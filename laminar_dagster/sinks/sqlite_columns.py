"""How SQLite holds the columns of a view.

| Arrow | SQLite | as |
|---|---|---|
| integers, bool | INTEGER | itself; 0 or 1. A uint64 above 2^63-1 is refused |
| float | REAL | itself; NaN becomes NULL, which is what SQLite makes of it |
| decimal | TEXT | all its digits: ``1.50``, ``1E-12`` |
| string | TEXT | itself |
| timestamp | TEXT | ``2024-01-31 23:59:59.123456Z``, digits by its unit; no ``Z`` without a zone |
| date, time | TEXT | ``2024-01-31``, ``23:59:59.123456`` |
| duration | INTEGER | how many of its unit |
| binary | BLOB | itself |
| list, struct, map | TEXT | JSON; what is TEXT above is a string in it, binary is base64 |

SQLite's own date functions read these forms, and in one column they sort by time. Years before 1
and after 9999 have no such form and are refused. Any other type is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.changes import Unwritable

Values = Callable[[pa.Array], list[object]]

_SECONDS_OF_YEAR_1: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_SECONDS_OF_YEAR_10000: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) + 86400
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_to_json: Final = msgspec.json.Encoder().encode


class Storage(Enum):
    """What a value is in the file, and what a column for it is declared as."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    TEXT = "TEXT"
    BLOB = "BLOB"


@dataclass(frozen=True, slots=True)
class SqliteColumn:
    """A column of the view, as SQLite will hold it.

    Attributes:
        may_look_numeric: Text that a column of numeric affinity would turn into a number.
        values: Turns an Arrow array into what is bound.
    """

    name: str
    storage: Storage
    may_look_numeric: bool
    values: Values


def column_for(field: pa.Field) -> SqliteColumn:
    """Choose how to hold a column.

    Raises:
        Unwritable: SQLite has no lossless form for its type.
    """
    storage, may_look_numeric, values = _form(field.name, field.type)

    def checked(array: pa.Array) -> list[object]:
        try:
            return values(array)
        except (pa.ArrowException, KeyError, ValueError, msgspec.MsgspecError) as error:
            raise Unwritable(f"a value of column `{field.name}` does not fit: {error}") from error

    return SqliteColumn(field.name, storage, may_look_numeric, checked)


def _form(name: str, kind: pa.DataType) -> tuple[Storage, bool, Values]:
    types = pa.types
    if types.is_dictionary(kind):
        storage, may_look_numeric, values = _form(name, kind.value_type)
        return storage, may_look_numeric, lambda array: values(array.cast(kind.value_type))
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_duration(kind):
        return Storage.INTEGER, False, _whole_numbers
    if types.is_floating(kind):
        return Storage.REAL, False, _as_they_are
    if types.is_decimal(kind):
        return Storage.TEXT, True, _as_text
    if _is_string(kind):
        return Storage.TEXT, True, _as_they_are
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return Storage.TEXT, False, _times
    if _is_binary(kind):
        return Storage.BLOB, False, _as_they_are
    if types.is_nested(kind):
        target = _json_type(name, kind)
        return Storage.TEXT, False, lambda array: _documents(array, target)
    raise Unwritable(
        f"column `{name}` is of type {kind}, which SQLite cannot hold; cast it in the view"
    )


def _as_they_are(array: pa.Array) -> list[object]:
    values: list[object] = array.to_pylist()
    return values


def _as_text(array: pa.Array) -> list[object]:
    return _as_they_are(array.cast(pa.string()))


def _whole_numbers(array: pa.Array) -> list[object]:
    is_wide = pa.types.is_duration(array.type) or pa.types.is_uint64(array.type)
    return _as_they_are(array.cast(pa.int64()) if is_wide else array)


def _times(array: pa.Array) -> list[object]:
    _check_years(array)
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Arrow keeps zoned times in UTC. To print them with their zone is 15 times slower.
        utc = array.cast(pa.timestamp(kind.unit)).cast(pa.string())
        return _as_they_are(pc.binary_join_element_wise(utc, "Z", ""))
    return _as_text(array)


def _check_years(array: pa.Array) -> None:
    """Arrow prints a time without a four-digit year as an error message, not as an error."""
    if pa.types.is_timestamp(array.type):
        scale = _PER_SECOND[array.type.unit]
        bounds = _SECONDS_OF_YEAR_1 * scale, _SECONDS_OF_YEAR_10000 * scale
        numbers = array.cast(pa.int64())
    elif pa.types.is_date(array.type):
        bounds = _SECONDS_OF_YEAR_1 // 86400, _SECONDS_OF_YEAR_10000 // 86400
        numbers = array.cast(pa.date32()).cast(pa.int32())
    else:
        return
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and not bounds[0] <= found["min"] <= found["max"] < bounds[1]:
        raise ValueError("its year is not between 1 and 9999")


def _documents(array: pa.Array, target: pa.DataType) -> list[object]:
    for leaf in _leaves(array):
        _check_years(leaf)
    values = array.cast(target).to_pylist(maps_as_pydicts="strict")
    return [None if value is None else _to_json(value).decode() for value in values]


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _leaves(part)
    elif pa.types.is_nested(kind):
        yield from _leaves(array.flatten())
    else:
        yield array


def _json_type(name: str, kind: pa.DataType) -> pa.DataType:
    """The type whose Python values are those of the JSON document."""
    types = pa.types
    if types.is_map(kind):
        return pa.map_(_json_type(name, kind.key_type), _json_type(name, kind.item_type))
    if types.is_struct(kind):
        return pa.struct([part.with_type(_json_type(name, part.type)) for part in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_json_type(name, kind.value_type))
    if types.is_dictionary(kind):
        return _json_type(name, kind.value_type)
    if types.is_duration(kind):
        return pa.int64()
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return kind
    if _is_binary(kind):
        return pa.binary()
    _form(name, kind)
    return pa.string()


def _is_string(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )

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

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.arrow_values import is_binary, is_string
from laminar_dagster.sinks.bad_values import BadValues, refuse
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.documents import check_json, documents
from laminar_dagster.sinks.times import ODD_YEARS, odd_years

Values = Callable[[pa.Array], list[object]]


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
        except BadValues as bad:
            count = int(bad.rows.sum())
            raise Unwritable(f"column `{field.name}` has {count} values that {bad.reason}") from bad
        except (pa.ArrowException, ValueError) as error:
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
    if is_string(kind):
        return Storage.TEXT, True, _as_they_are
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return Storage.TEXT, False, _times
    if is_binary(kind):
        return Storage.BLOB, False, _as_they_are
    if types.is_nested(kind):
        check_json(name, kind)
        return Storage.TEXT, False, lambda array: _as_they_are(documents(array))
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
    refuse(odd_years(array), ODD_YEARS)
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Arrow keeps zoned times in UTC. To print them with their zone is 15 times slower.
        utc = array.cast(pa.timestamp(kind.unit)).cast(pa.string())
        return _as_they_are(pc.binary_join_element_wise(utc, "Z", ""))
    return _as_text(array)

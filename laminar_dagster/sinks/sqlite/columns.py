"""Map the columns of a view to SQLite columns.

| Arrow | SQLite | as |
|---|---|---|
| integers, bool | INTEGER | itself; 0 or 1. A uint64 above 2^63-1 is refused |
| float | REAL | itself. NaN is refused: SQLite would make it NULL |
| decimal | NUMERIC | a number, where that is exact (see ``decimals``); else it is refused |
| decimal, if asked for | TEXT | all its digits: ``1.50``, ``1E-12`` |
| string | TEXT | itself |
| timestamp | TEXT | ``2024-01-31 23:59:59.123456Z``, digits by its unit; no ``Z`` without a zone |
| date, time | TEXT | ``2024-01-31``, ``23:59:59.123456`` |
| duration | INTEGER | a number in its unit |
| binary | BLOB | itself |
| list, struct, map | TEXT | JSON; times and decimals are strings in it, binary is base64 |

SQLite's own date functions read these forms, and in one column they sort by time. Years before 1
and after 9999 have no such form and are refused. Any other type is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.arrow_values import (
    is_binary,
    is_string,
    plain,
    refuse_odd_text,
    valid_rows,
)
from laminar_dagster.sinks.bad_values import blamed_on, refuse
from laminar_dagster.sinks.changes import WEIGHT, Unwritable, split
from laminar_dagster.sinks.documents import check_json, documents
from laminar_dagster.sinks.numbers import flags
from laminar_dagster.sinks.sqlite.decimals import DIGITS, numbers_of, refuse_inexact
from laminar_dagster.sinks.staged import staged_columns
from laminar_dagster.sinks.staged_values import check_changes
from laminar_dagster.sinks.times import MOST, ODD_YEARS, odd_years

Decimals = Literal["number", "text"]
Refuse = Callable[[pa.Array], None]
Values = Callable[[pa.Array], list[object]]

_NAN: Final = "are NaN, which SQLite would make NULL; make them so in the view: nanvl(…, NULL)"
_NULL_IN_ROW_NUMBER: Final = "are null, for which SQLite would make up a row number"


class Storage(Enum):
    """The storage class of a value, and the declared type of a column for it.

    NUMERIC is INTEGER or REAL, whichever holds the number.
    """

    INTEGER = "INTEGER"
    REAL = "REAL"
    NUMERIC = "NUMERIC"
    TEXT = "TEXT"
    BLOB = "BLOB"


@dataclass(frozen=True, slots=True)
class SqliteColumn:
    """A column of the view, and how SQLite stores it.

    Attributes:
        type: The type in the view.
        may_look_numeric: Whether a column of numeric affinity could turn its text into numbers.
        values: Converts an Arrow array that passed ``refusals`` to values to bind.
        refusals: Raise ``BadValues`` for values without a lossless form; empty if all have one.
        refuses_itself: Whether ``values`` raises it too, so that ``encode`` skips ``refusals``.
    """

    name: str
    type: pa.DataType
    storage: Storage
    may_look_numeric: bool
    values: Values
    refusals: tuple[Refuse, ...] = ()
    refuses_itself: bool = False

    def encode(self, array: pa.Array) -> list[object]:
        """The values to bind.

        Raises:
            BadValues: A value has no lossless form.
        """
        if not self.refuses_itself:
            self.check(array)
        return self.values(array)

    def check(self, array: pa.Array) -> None:
        """Refuse what ``encode`` refuses.

        Raises:
            BadValues: A value has no lossless form.
        """
        for refusal in self.refusals:
            refusal(array)

    def without_nulls(self) -> SqliteColumn:
        """The same column, but refusing nulls: SQLite would replace a null row number."""
        return replace(self, refusals=(*self.refusals, _refuse_nulls))


def column_for(field: pa.Field, decimals: Decimals = "number") -> SqliteColumn:
    """Choose how to store a column.

    Args:
        field: The column.
        decimals: Whether to store decimals as numbers or as text.

    Raises:
        Unwritable: SQLite has no lossless form for its type.
    """
    kind = field.type
    if not pa.types.is_dictionary(kind):
        return _column(field.name, kind, decimals)
    inner = _column(field.name, kind.value_type, decimals)

    def unpacked(array: pa.Array) -> pa.Array:
        return array.cast(kind.value_type)

    return replace(
        inner,
        values=lambda array: inner.values(unpacked(array)),
        refusals=(lambda array: inner.check(unpacked(array)),) if inner.refusals else (),
    )


def rows_to_bind(
    columns: Sequence[SqliteColumn], batch: pa.RecordBatch, key: tuple[str, ...] = ()
) -> Iterator[tuple[object, ...]]:
    """The rows of a batch, as tuples of values to bind.

    Raises:
        Unwritable: A value does not fit; with a sample of the rows.
    """
    encoded = []
    for column in columns:
        with blamed_on(batch, column.name, key):
            encoded.append(column.encode(batch.column(column.name)))
    return zip(*encoded, strict=True)


def check_staged(
    staged: StagedOutput, columns: Sequence[SqliteColumn], key: tuple[str, ...]
) -> None:
    """Refuse the keys, weights and values that a commit would, file by file like a commit.

    Raises:
        Unwritable: Says which column, and shows bad rows.
        ObjectMissing, ChecksumMismatch, MalformedDocument: A file cannot be read.
    """
    choosy = [column for column in columns if column.refusals]
    if not choosy:
        check_changes(staged, key)
        return
    of_key = [column for column in choosy if column.name in key]

    def wanted(schema: pa.Schema) -> list[str]:
        names = dict.fromkeys((*key, WEIGHT, *(column.name for column in choosy)))
        return [name for name in names if name in schema.names]

    for rows in staged_columns(staged, wanted):
        changes = split(rows, key)
        for table, held in ((changes.rows, choosy), (changes.deleted, of_key)):
            for batch in table.to_batches() if table is not None else ():
                for column in held:
                    with blamed_on(batch, column.name, key):
                        column.check(batch.column(column.name))


def _column(name: str, kind: pa.DataType, decimals: Decimals) -> SqliteColumn:
    types = pa.types

    def held(
        storage: Storage, values: Values, *refusals: Refuse, may_look_numeric: bool = False
    ) -> SqliteColumn:
        return SqliteColumn(name, kind, storage, may_look_numeric, values, refusals)

    if types.is_uint64(kind):
        return held(Storage.INTEGER, _as_they_are, _refuse_large)
    if types.is_boolean(kind) or types.is_integer(kind):
        return held(Storage.INTEGER, _as_they_are)
    if types.is_duration(kind):
        return held(Storage.INTEGER, lambda array: _as_they_are(array.cast(pa.int64())))
    if types.is_floating(kind):
        return held(Storage.REAL, _as_they_are, _refuse_nan)
    if types.is_decimal(kind):
        if decimals == "text":
            return held(Storage.TEXT, _as_text, may_look_numeric=True)
        refusals = (refuse_inexact,) if kind.precision > DIGITS else ()
        return held(Storage.NUMERIC, numbers_of, *refusals)
    if is_string(kind):
        return held(Storage.TEXT, _as_they_are, _refuse_no_text, may_look_numeric=True)
    if types.is_time(kind):
        return held(Storage.TEXT, _as_text)
    if types.is_date(kind) or types.is_timestamp(kind):
        return held(Storage.TEXT, _times, _refuse_odd_years)
    if is_binary(kind):
        return held(Storage.BLOB, _as_they_are)
    if types.is_nested(kind):
        check_json(name, kind)
        return replace(
            held(Storage.TEXT, lambda array: _as_they_are(documents(array)), _refuse_no_document),
            refuses_itself=True,
        )
    raise Unwritable(
        f"column `{name}` is of type {kind}, which SQLite cannot hold; cast it in the view"
    )


def _as_they_are(array: pa.Array) -> list[object]:
    values: list[object] = array.to_pylist()
    return values


def _as_text(array: pa.Array) -> list[object]:
    return _as_they_are(array.cast(pa.string()))


def _times(array: pa.Array) -> list[object]:
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Arrow stores zoned times in UTC; printing them with their zone is 15 times slower.
        utc = array.cast(pa.timestamp(kind.unit)).cast(pa.string())
        return _as_they_are(pc.binary_join_element_wise(utc, "Z", ""))
    return _as_text(array)


def _refuse_large(array: pa.Array) -> None:
    is_large = pc.greater(array, pa.scalar(MOST, pa.uint64()))
    refuse(flags(is_large), f"are larger than {MOST}, SQLite's largest whole number")


def _refuse_nan(array: pa.Array) -> None:
    refuse(flags(pc.is_nan(plain(array))), _NAN)


def _refuse_no_text(array: pa.Array) -> None:
    refuse_odd_text(plain(array))


def _refuse_odd_years(array: pa.Array) -> None:
    refuse(odd_years(array), ODD_YEARS)


def _refuse_no_document(array: pa.Array) -> None:
    documents(array)


def _refuse_nulls(array: pa.Array) -> None:
    refuse(np.logical_not(valid_rows(array)), _NULL_IN_ROW_NUMBER)

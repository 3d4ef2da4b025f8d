"""Convert Arrow arrays to the texts that MySQL parses, and refuse values it cannot hold."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks import numbers
from laminar_dagster.sinks.bad_values import refuse
from laminar_dagster.sinks.numbers import flags
from laminar_dagster.sinks.times import counted

_DAY: Final = 86_400_000_000
# The first day of year 1 and the last of year 9999, in days since 1970.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
# The range of a `timestamp` on every server: 1970-01-01 00:00:01 to 2038-01-19 03:14:07.
_FIRST_MOMENT: Final = 1_000_000
_LAST_MOMENT: Final = 2**31 * 1_000_000 - 1
_OUT_OF_RANGE: Final = "are out of the range of MySQL's type"


def as_text(array: pa.Array) -> pa.Array:
    """Values as Arrow prints them."""
    return array.cast(pa.string())


def booleans(array: pa.Array) -> pa.Array:
    """Booleans as 0 or 1."""
    return array.cast(pa.uint8()).cast(pa.string())


def durations(array: pa.Array) -> pa.Array:
    """Durations as a number in their unit."""
    return array.cast(pa.int64()).cast(pa.string())


def floats(array: pa.Array) -> pa.Array:
    """The shortest text that a ``double`` parses to exactly this number.

    Raises:
        BadValues: A value is NaN or infinite.
    """
    array = array.cast(pa.float64())
    refuse(flags(pc.invert(pc.is_finite(array))), "are NaN or infinite, which MySQL does not have")
    return array.cast(pa.string())


def dates(array: pa.Array) -> pa.Array:
    """Dates.

    Raises:
        BadValues: A date is out of range.
    """
    array = array.cast(pa.date32())
    days = numbers.numbers(array.cast(pa.int32()))
    refuse((days < _FIRST_DAY) | (days > _LAST_DAY), _OUT_OF_RANGE)
    return array.cast(pa.string())


def datetimes(array: pa.Array) -> pa.Array:
    """Timestamps for a ``datetime``, in microseconds; those with a zone in UTC.

    Raises:
        BadValues: A timestamp is out of range, or not a whole microsecond.
    """
    return _timed(array, pa.timestamp("us"), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)


def moments(array: pa.Array) -> pa.Array:
    """Timestamps for a ``timestamp`` column, which holds the years 1970 to 2038.

    Raises:
        BadValues: A timestamp is out of range, or not a whole microsecond.
    """
    return _timed(array, pa.timestamp("us"), _FIRST_MOMENT, _LAST_MOMENT)


def times(array: pa.Array) -> pa.Array:
    """Times of day.

    Raises:
        BadValues: A time is not a whole microsecond, or not within a day.
    """
    return _timed(array, pa.time64("us"), 0, _DAY - 1)


def of_length(array: pa.Array, length: int) -> pa.Array:
    """Texts of at most ``length`` characters.

    Raises:
        BadValues: A text is longer.
    """
    return numbers.of_length(array, length, exactly=False)


def of_size(array: pa.Array, octets: int | None) -> pa.Array:
    """Texts or bytes of at most ``octets`` bytes.

    Raises:
        BadValues: A value is longer.
    """
    if octets is not None:
        bad = pc.greater(pc.binary_length(array), octets)
        refuse(flags(bad), f"do not have at most {octets} bytes")
    return array


def refuse_final_spaces(array: pa.Array, reason: str) -> pa.Array:
    """Texts without trailing spaces.

    Raises:
        BadValues: A text ends with a space.
    """
    refuse(flags(pc.ends_with(array, " ")), reason)
    return array


def refuse_nulls(array: pa.Array) -> None:
    """Refuse nulls.

    Raises:
        BadValues: A value is null.
    """
    if array.null_count:
        refuse(flags(array.is_null()), "are null, which the table does not allow")


def _timed(array: pa.Array, kind: pa.DataType, first: int, last: int) -> pa.Array:
    found = counted(array, "us", first, last, _OUT_OF_RANGE)
    missing = flags(array.is_null()) if array.null_count else None
    return pa.array(found.astype(np.int64), mask=missing).cast(kind).cast(pa.string())

"""Convert times to integers of a unit, and find years that cannot be printed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa

from laminar_dagster.sinks.bad_values import Rows, refuse
from laminar_dagster.sinks.numbers import Int64s, flags, numbers

LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1

ODD_YEARS: Final = "have a year that is not between 1 and 9999, and so no form here"

_SECONDS_OF_YEAR_1: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_SECONDS_OF_YEAR_10000: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) + 86400
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def counted(
    array: pa.Array,
    unit: str,
    first: int = LEAST,
    last: int = MOST,
    too_far: str = "are too large for 64 bits",
) -> Int64s:
    """Timestamps, times or durations as integers of a unit; a null is 0.

    Args:
        array: The values.
        unit: The unit as in Arrow: ``us``.
        first: The smallest number to allow.
        last: The largest number to allow.
        too_far: The reason to give for numbers out of bounds.

    Raises:
        BadValues: A value is not whole in this unit, or out of bounds.
    """
    is_short = pa.types.is_time32(array.type)
    found = numbers(array.cast(pa.int32() if is_short else pa.int64())).astype(np.int64)
    have, want = _PER_SECOND[array.type.unit], _PER_SECOND[unit]
    factor = max(1, want // have)
    if have > want:
        step = have // want
        refuse(found % step != 0, f"are no whole {_NAMES[unit]}")
        found //= step
    is_too_far = (found < -(-first // factor)) | (found > last // factor)
    # Ignore nulls, which are 0 here and may be out of bounds.
    refuse(is_too_far & flags(array.is_valid()), too_far)
    counts: Int64s = found * factor
    return counts


def odd_years(array: pa.Array) -> Rows:
    """A mask of the dates and timestamps whose year is not between 1 and 9999.

    They must be refused: Arrow prints such a time as an error message, instead of raising.
    """
    if pa.types.is_timestamp(array.type):
        scale = _PER_SECOND[array.type.unit]
        first, end = _SECONDS_OF_YEAR_1 * scale, _SECONDS_OF_YEAR_10000 * scale
        counts = array.cast(pa.int64())
    elif pa.types.is_date(array.type):
        first, end = _SECONDS_OF_YEAR_1 // 86400, _SECONDS_OF_YEAR_10000 // 86400
        counts = array.cast(pa.date32()).cast(pa.int32())
    else:
        return np.zeros(len(array), np.bool_)
    numbers = counts.fill_null(0).to_numpy(zero_copy_only=False)
    found: Rows = (numbers < first) | (numbers >= end)
    return found

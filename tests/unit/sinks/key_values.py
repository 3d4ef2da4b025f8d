"""The values of keys, of what a database or a message has in their place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

import pyarrow as pa

from laminar_dagster.testing.sink_keys import Key, KeyKind

# Whoever puts by key compares; these have no one order, or several forms of one value.
NO_KEYS: Final = {
    "float32": "does not compare well",
    "float64": "does not compare well",
    "array": "does not compare well",
    "struct": "does not compare well",
}


def as_view_has(kind: KeyKind, stored: Sequence[object]) -> Key:
    """A key as ``KeyKind.keys`` has it, of numbers, texts and Python's own values."""
    return tuple(_value(each, value) for each, value in zip(kind.types, stored, strict=True))


def _value(kind: pa.DataType, stored: object) -> object:
    types = pa.types
    if types.is_boolean(kind):
        assert stored in (0, 1)
        return bool(stored)
    if types.is_decimal(kind):
        return Decimal(str(stored))
    if types.is_duration(kind) and isinstance(stored, int):
        return timedelta(microseconds=stored)
    if types.is_date(kind):
        return date.fromisoformat(str(stored))
    if types.is_time(kind) and not isinstance(stored, timedelta):
        return time.fromisoformat(str(stored))
    if types.is_time(kind):
        assert isinstance(stored, timedelta)
        return (datetime(1, 1, 1, tzinfo=UTC) + stored).time()
    if types.is_timestamp(kind):
        moment = datetime.fromisoformat(str(stored))
        # A column without a zone has it in UTC.
        utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return utc if kind.tz else utc.replace(tzinfo=None)
    return stored

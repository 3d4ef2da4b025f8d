"""Minimum and maximum of an epoch's keys, so that a merge skips files that hold none of them.

A Delta log has the minimum and maximum of each file's columns, in JSON, where writers round them: a
decimal becomes a float of 16 digits, a text is truncated, a timestamp ends with its milliseconds. A
merge that prunes files by rounded statistics can skip the file that holds the key, and insert the
row a second time. So bounds exist only for types with exact statistics, integers and dates; and for
timestamps, with a margin wider than what writers cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_MARGIN: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The range that both Python and SQL can represent, margin included.
_EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """An inclusive range that contains all keys of a column.

    Attributes:
        column: The column's name.
        least: The lower bound, of the column's type.
        most: The upper bound, of the column's type.
    """

    column: str
    least: pa.Scalar
    most: pa.Scalar

    def sql(self, column: str) -> str:
        """The range as a SQL condition for the Delta client.

        Args:
            column: The column as the statement names it.
        """
        return f"{column} >= {_literal(self.least)} AND {column} <= {_literal(self.most)}"

    def expression(self) -> pc.Expression:
        """The range as a pyarrow filter expression."""
        field = pc.field(self.column)
        return (field >= self.least) & (field <= self.most)


def bounds_of(keys: pa.Table) -> list[Bounds]:
    """The bounds of each column whose type can have them.

    Args:
        keys: The key columns in the table's types; without nulls.
    """
    return [*_bounds(keys)] if keys.num_rows else []


def expression_of(keys: pa.Table) -> pc.Expression | None:
    """A filter that all the keys pass; None if no column has bounds."""
    found = [each.expression() for each in bounds_of(keys)]
    return reduce(and_, found) if found else None


def _bounds(keys: pa.Table) -> Iterator[Bounds]:
    for name in keys.column_names:
        column = keys.column(name)
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_date32(kind):
            ends = pc.min_max(column)
            yield Bounds(name, ends["min"], ends["max"])
        elif pa.types.is_timestamp(kind):
            # Compared as integers: Python's datetime cannot hold every timestamp.
            ends = pc.min_max(column.cast(pa.int64()))
            least, most = ends["min"].as_py(), ends["max"].as_py()
            if _micros(_EARLIEST) <= least and most <= _micros(_LATEST):
                margin = _MARGIN // _MICROSECOND
                yield Bounds(name, pa.scalar(least - margin, kind), pa.scalar(most + margin, kind))


def _literal(value: pa.Scalar) -> str:
    if pa.types.is_integer(value.type):
        return str(value.as_py())
    if pa.types.is_date(value.type):
        return f"DATE '{value.as_py().isoformat()}'"
    moment = _EPOCH + value.value * _MICROSECOND
    # A SQL timestamp literal would be in nanoseconds, whose range ends in the year 2262.
    zone = "None" if value.type.tz is None else 'Some("UTC")'
    text = moment.replace(tzinfo=None).isoformat() + ("" if value.type.tz is None else "Z")
    return f"arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND

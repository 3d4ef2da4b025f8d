"""Filters and projections that keep dropped rows in the frame until they have been counted.

Expressions are evaluated for live rows only, because in SQL they come after the WHERE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

from laminar_dagster.config.relations import Projection
from laminar_dagster.config.sql.logical_clock import with_clock
from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.spark.columns import CONTROL, KEEP, PART

_LIVE: Final = f"({KEEP} AND {CONTROL} IS NULL)"


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Filters and projections in an epoch, whose logical clock is the only one they see."""

    clock: datetime

    def filtered(self, frame: DataFrame, where: str | None) -> DataFrame:
        """Apply a WHERE: rows that do not match stay, with ``_keep`` false."""
        if where is None:
            return frame
        self.look_at_condition(frame, where)
        keep = f"{_LIVE} AND coalesce({self.sql(where)}, false)"
        others = [f"`{name}`" for name in frame.columns if name != KEEP]
        return frame.selectExpr(*others, f"{keep} AS {KEEP}")

    def look_at_condition(self, frame: DataFrame, where: str) -> None:
        """Let Spark check that it is boolean: in a projection it would accept a string as well."""
        frame.where(self.sql(where))

    def projected(self, frame: DataFrame, columns: Iterable[Projection]) -> DataFrame:
        """Select the columns, and the engine's own of every frame."""
        return frame.selectExpr(PART, CONTROL, KEEP, *map(self._live, columns))

    def _live(self, column: Projection) -> str:
        return f"IF({_LIVE}, {self.sql(column.sql)}, NULL) AS `{column.name}`"

    def sql(self, text: str) -> str:
        """The expression with ``epoch_time()`` replaced by the epoch's logical clock."""
        return with_clock(text, f"timestamp_micros({to_utc_microseconds(self.clock)})")


def united(parts: Sequence[DataFrame]) -> DataFrame:
    """The rows of several frames, column by position, under the names of the first."""
    frames: list[DataFrame] = []
    for index, frame in enumerate(parts):
        names = [name for name in frame.columns if name not in (PART, CONTROL, KEEP)]
        wanted = frames[0].columns[3:] if frames else names
        frames.append(
            frame.selectExpr(
                # Files are named after parts: parts of different frames must stay different.
                f"{PART} * {len(parts)} + {index} AS {PART}",
                CONTROL,
                KEEP,
                *(f"`{old}` AS `{new}`" for old, new in zip(names, wanted, strict=True)),
            )
        )
    return reduce(DataFrame.union, frames)

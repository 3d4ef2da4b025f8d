"""Schema evolution of state rows and files: partials added after it began (``core.additions``).

A row carries the generation in which it began; merged rows take the earliest. Older files have
neither that column nor the added partials: their rows are of generation 0, and missing partials are
filled with neutral values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.columns import SINCE

METADATA: Final = b"laminar.state"

_BEGAN: Final = PartialColumn(SINCE, SINCE, "min", "min", pa.int64())


@dataclass(frozen=True, slots=True)
class Growth:
    """The partials added to a state, and the generation of the rows that begin now.

    Attributes:
        added: Each added partial with the generation in which it was added.
        hidden: The added partials that are NULL in rows of an earlier generation.
    """

    generation: int
    added: tuple[tuple[str, int], ...]
    hidden: tuple[str, ...] = ()

    def is_known(self, partials: Sequence[str]) -> str | None:
        """Spark SQL that is false in rows too old for an aggregate's partials; None if none are."""
        came = [when for name, when in self.added if name in partials and name in self.hidden]
        return f"{SINCE} >= {max(came)}" if came else None


def began(growth: Growth | None) -> tuple[PartialColumn, ...]:
    """The partial that holds the generation in which a row began; none without additions."""
    return (_BEGAN,) if growth else ()


def beginning(growth: Growth | None, rows: int) -> dict[str, pa.Array]:
    """The ``_since`` column for rows that begin now; none without additions."""
    return {SINCE: pa.array(np.full(rows, growth.generation, np.int64))} if growth else {}


def growth_told(growth: Growth | None) -> dict[str, Any]:
    """The entries about added partials in a file's metadata."""
    return {"generation": growth.generation, "added": dict(growth.added)} if growth else {}


def growth_of_file(about: Mapping[str, Any]) -> Growth | None:
    """Read ``growth_told`` back from a file's metadata; None if nothing was added."""
    if "generation" not in about:
        return None
    return Growth(about["generation"], tuple(about["added"].items()))


def grown(table: pa.Table, columns: Sequence[PartialColumn], growth: Growth | None) -> pa.Table:
    """Stored rows with the columns of partials that were added after they were written."""
    if growth is None:
        return table
    about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    stored = about.get("added", {})
    added = {name: when for name, when in growth.added if stored.get(name, 0) != when}
    for column in columns:
        if column.name in added:
            # A partial removed and added again starts anew: drop the column of its first life.
            if column.name in table.column_names:
                table = table.drop_columns([column.name])
            table = table.append_column(column.name, _nothing(column, table.num_rows))
    if SINCE not in table.column_names:
        table = table.append_column(SINCE, pa.array(np.zeros(table.num_rows, np.int64)))
    return table


def _nothing(column: PartialColumn, rows: int) -> pa.Array:
    """Neutral values for an added partial: 0 for a count, null for all others."""
    if column.first == "count":
        return pa.array(np.zeros(rows, np.int64))
    return pa.nulls(rows, column.arrow_type)

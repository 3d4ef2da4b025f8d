"""Partials that were added to a state after it began, in its rows and files: ``core.additions``.

A row carries the generation in which it began, and of several rows that become one the earliest
counts. Files of before have neither that column nor the partials: their rows are of generation 0,
and what they lack is filled with what adds nothing.
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
    """What was added to a state, and the generation of the rows that begin now.

    Attributes:
        added: The generation in which each partial came that was not there from the beginning.
        hidden: Those of them that rows of before do not show.
    """

    generation: int
    added: tuple[tuple[str, int], ...]
    hidden: tuple[str, ...] = ()

    def is_known(self, partials: Sequence[str]) -> str | None:
        """Whether a row knows all of an aggregate, as Spark SQL; None if every row does."""
        came = [when for name, when in self.added if name in partials and name in self.hidden]
        return f"{SINCE} >= {max(came)}" if came else None


def began(growth: Growth | None) -> tuple[PartialColumn, ...]:
    """The column that says in which generation a row began, if one is needed."""
    return (_BEGAN,) if growth else ()


def beginning(growth: Growth | None, rows: int) -> dict[str, pa.Array]:
    """That column for rows that begin now."""
    return {SINCE: pa.array(np.full(rows, growth.generation, np.int64))} if growth else {}


def growth_told(growth: Growth | None) -> dict[str, Any]:
    """What a file tells of it."""
    return {"generation": growth.generation, "added": dict(growth.added)} if growth else {}


def growth_of_file(about: Mapping[str, Any]) -> Growth | None:
    """What a file tells of it, read."""
    if "generation" not in about:
        return None
    return Growth(about["generation"], tuple(about["added"].items()))


def grown(table: pa.Table, columns: Sequence[PartialColumn], growth: Growth | None) -> pa.Table:
    """Stored rows with the columns that were added since."""
    if growth is None:
        return table
    about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    stored = about.get("added", {})
    added = {name: when for name, when in growth.added if stored.get(name, 0) != when}
    for column in columns:
        if column.name in added:
            # One of that name may be there, from before it was left out and came again.
            if column.name in table.column_names:
                table = table.drop_columns([column.name])
            table = table.append_column(column.name, _nothing(column, table.num_rows))
    if SINCE not in table.column_names:
        table = table.append_column(SINCE, pa.array(np.zeros(table.num_rows, np.int64)))
    return table


def _nothing(column: PartialColumn, rows: int) -> pa.Array:
    """What adds nothing: a count of 0, and otherwise null."""
    if column.first == "count":
        return pa.array(np.zeros(rows, np.int64))
    return pa.nulls(rows, column.arrow_type)

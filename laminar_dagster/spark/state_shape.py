"""The row layout of an operator's state, and how rows of an older layout are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregates import PartialColumn, merge_partials
from laminar_dagster.spark.answers import Answer, answered
from laminar_dagster.spark.arrow_files import schema_fingerprint
from laminar_dagster.spark.columns import END
from laminar_dagster.spark.growth import METADATA, Growth, began, grown, growth_of_file, growth_told
from laminar_dagster.spark.row_order import sorted_by


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key: its column in the state, the SQL expression it is computed from, and its type."""

    name: str
    sql: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StateShape:
    """The row layout of a window state: window end, keys, partials.

    It is stored in the schema metadata of each state file.

    Attributes:
        weight: The partial that sums the weights of a window's rows; None without retractions.
        growth: The partials added to the state after it began; None if there are none.
        answers: The output values finalised from multisets and sketches, which stay in the state.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    columns: tuple[PartialColumn, ...]
    weight: str | None = None
    growth: Growth | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (END, *(key.name for key in self.keys))

    @property
    def schema(self) -> pa.Schema:
        """The schema of a state file."""
        fields = [(END, pa.int64())]
        fields += [(key.name, key.arrow_type) for key in self.keys]
        fields += [(column.name, column.arrow_type) for column in self.kept]
        about = {
            "operator": self.operator,
            "keys": {key.name: key.sql for key in self.keys},
            **({"weight": self.weight} if self.weight is not None else {}),
            **partials_told(self.columns),
            **growth_told(self.growth),
        }
        return pa.schema(fields, {METADATA: json.dumps(about, ensure_ascii=False)})

    @property
    def kept(self) -> tuple[PartialColumn, ...]:
        """The partials, and ``_since`` if some of them were added later."""
        return (*self.columns, *began(self.growth))

    @classmethod
    def of_file(cls, schema: pa.Schema) -> StateShape:
        """Read the shape that a file was written with from its schema."""
        about = json.loads(schema.metadata[METADATA])
        return cls(
            OperatorId(about["operator"]),
            *stored_columns(about, schema),
            about.get("weight"),
            growth_of_file(about),
        )

    @property
    def output(self) -> pa.Schema:
        """The schema of closed windows, before Spark computes the final values."""
        hidden = opaque_names(self.columns)
        kept = [each for each in self.schema if each.name not in hidden]
        told = [pa.field(each.name, each.arrow_type) for each in self.answers]
        return pa.schema([*kept, *told])

    @property
    def fingerprint(self) -> str:
        """A hash of the names and types of the columns."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Convert stored rows to this shape: adds, removes and widens columns after evolution.

        Raises:
            ValueError: The rows cannot be converted.
        """
        return cast_rows(grown(table, self.columns, self.growth), self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest window end among sorted rows; None without rows."""
        ends = rows.column(END)
        return (ends[0].as_py(), ends[-1].as_py()) if rows.num_rows else None

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge parts, in the order given, to one row for each window and key, sorted."""
        names = self.schema.names
        table = pa.concat_tables([part.select(names) for part in parts])
        merged = merge_partials(table, self.group, self.kept, self.operator)
        return sorted_by(merged, self.group)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Merged rows as output rows, without windows whose records were all retracted."""
        if self.weight is not None:
            rows = rows.filter(pc.greater(rows.column(self.weight), 0))
        return answered(rows, self.answers, opaque_names(self.columns))


def opaque_names(columns: Sequence[PartialColumn]) -> tuple[str, ...]:
    """The columns that stay in the state: multisets and sketches, which are not output."""
    return tuple(column.name for column in columns if column.is_opaque)


def partials_told(columns: Sequence[PartialColumn]) -> dict[str, dict[str, str]]:
    """The entries about partials in a file's metadata: how each is merged, and by which column."""
    told = {"partials": {column.name: str(column.merge) for column in columns}}
    by = {column.name: column.by[1] for column in columns if column.by}
    # Left out if empty: older files lack it, and the same rows must give the same bytes.
    return {**told, "by": by} if by else told


def _by(about: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    found = about.get("by", {}).get(name)
    return (found, found) if found is not None else None


def stored_columns(
    about: Mapping[str, Any], schema: pa.Schema
) -> tuple[tuple[KeyColumn, ...], tuple[PartialColumn, ...]]:
    """Read the keys and the partials of a file from its metadata."""
    keys = about["keys"].items()
    return (
        tuple(KeyColumn(name, sql, schema.field(name).type) for name, sql in keys),
        tuple(
            PartialColumn(name, None, "count", merge, schema.field(name).type, by=_by(about, name))
            for name, merge in about["partials"].items()
        ),
    )


def cast_rows(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Convert stored rows to a schema: removes other columns, and widens types.

    Raises:
        ValueError: A column is missing, or cannot be cast.
    """
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise ValueError(f"it holds no {', '.join(missing)}")
    found = table.select(wanted.names)
    try:
        return found.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"its columns have other types: {error}") from None

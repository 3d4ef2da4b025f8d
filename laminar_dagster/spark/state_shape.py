"""What the rows of an operator's state look like, and how rows of an older look are read."""

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
    """A key: its column in the state, the expression it is, and its type."""

    name: str
    sql: str
    arrow_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StateShape:
    """What the rows of a state look like: window end, keys, partials.

    It is kept with the rows, in the metadata of each file's schema.

    Attributes:
        weight: The partial that counts a window's rows by weight; None if none is taken back.
        growth: What was added to the state after it began; None if nothing was.
        answers: What of the output is made of multisets and sketches, which stay in the state.
    """

    operator: OperatorId
    keys: tuple[KeyColumn, ...]
    columns: tuple[PartialColumn, ...]
    weight: str | None = None
    growth: Growth | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def group(self) -> tuple[str, ...]:
        """What identifies a row."""
        return (END, *(key.name for key in self.keys))

    @property
    def schema(self) -> pa.Schema:
        """Of a file of state."""
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
        """The partials, and since when a row knows them."""
        return (*self.columns, *began(self.growth))

    @classmethod
    def of_file(cls, schema: pa.Schema) -> StateShape:
        """The shape that a file was written with."""
        about = json.loads(schema.metadata[METADATA])
        return cls(
            OperatorId(about["operator"]),
            *stored_columns(about, schema),
            about.get("weight"),
            growth_of_file(about),
        )

    @property
    def output(self) -> pa.Schema:
        """Of closed windows, before their values are finished."""
        hidden = opaque_names(self.columns)
        kept = [each for each in self.schema if each.name not in hidden]
        told = [pa.field(each.name, each.arrow_type) for each in self.answers]
        return pa.schema([*kept, *told])

    @property
    def fingerprint(self) -> str:
        """Changes when a column's name or type does."""
        return schema_fingerprint(self.schema)

    def read(self, table: pa.Table) -> pa.Table:
        """Stored rows as rows of this shape: columns left out, and widened, where it changed.

        Raises:
            ValueError: They cannot be read so.
        """
        return cast_rows(grown(table, self.columns, self.growth), self.schema)

    def bounds(self, rows: pa.Table) -> tuple[int, int] | None:
        """The smallest and largest end of a window among sorted rows."""
        ends = rows.column(END)
        return (ends[0].as_py(), ends[-1].as_py()) if rows.num_rows else None

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """One row for each window and key, sorted; parts are merged in the order given."""
        names = self.schema.names
        table = pa.concat_tables([part.select(names) for part in parts])
        merged = merge_partials(table, self.group, self.kept, self.operator)
        return sorted_by(merged, self.group)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Merged rows as rows of the output, without those that were taken back to the last one."""
        if self.weight is not None:
            rows = rows.filter(pc.greater(rows.column(self.weight), 0))
        return answered(rows, self.answers, opaque_names(self.columns))


def opaque_names(columns: Sequence[PartialColumn]) -> tuple[str, ...]:
    """The columns of a state that do not come out of it."""
    return tuple(column.name for column in columns if column.is_opaque)


def partials_told(columns: Sequence[PartialColumn]) -> dict[str, dict[str, str]]:
    """What the metadata of a file says of its partials: how each is merged, and by what."""
    told = {"partials": {column.name: str(column.merge) for column in columns}}
    by = {column.name: column.by[1] for column in columns if column.by}
    # Older files have none, and the same rows are to give the same bytes.
    return {**told, "by": by} if by else told


def _by(about: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    found = about.get("by", {}).get(name)
    return (found, found) if found is not None else None


def stored_columns(
    about: Mapping[str, Any], schema: pa.Schema
) -> tuple[tuple[KeyColumn, ...], tuple[PartialColumn, ...]]:
    """The keys and the partials of a file, by its metadata."""
    keys = about["keys"].items()
    return (
        tuple(KeyColumn(name, sql, schema.field(name).type) for name, sql in keys),
        tuple(
            PartialColumn(name, None, "count", merge, schema.field(name).type, by=_by(about, name))
            for name, merge in about["partials"].items()
        ),
    )


def cast_rows(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Stored rows with the columns that are wanted: others left out, and types widened.

    Raises:
        ValueError: They cannot be read so.
    """
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise ValueError(f"it holds no {', '.join(missing)}")
    found = table.select(wanted.names)
    try:
        return found.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"its columns have other types: {error}") from None

"""Joins a frame with a reference table, after checking the types of the join keys."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StructField,
    StructType,
)

from laminar_dagster.config.model import Column, ReferenceTable
from laminar_dagster.config.relations import ReferenceJoin
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.spark.aggregate_types import WrongType
from laminar_dagster.spark.columns import unquoted
from laminar_dagster.spark.reference_step import CAN_MATCH, KEY, PinnedTable, ReferenceStep

_OWN: Final = "_own"
_FOUND: Final = "_found"


def joined_frame(
    rows: DataFrame,
    join: ReferenceJoin,
    table: ReferenceTable,
    pin: ReferencePin | None,
    store: ObjectStore,
    operator: str | None,
) -> DataFrame:
    """The rows of a frame joined with the rows of a table.

    Args:
        rows: With the columns that are kept, keys and ``_can_match``; see ``ReferenceStep``.
        join: The relation.
        table: The reference table.
        pin: The files of the table that the plan has pinned; None where nothing is read.
        store: The pipeline's store.
        operator: The operator that records are counted for; None if these rows are no records.

    Raises:
        WrongType: A key has another type than the column it is compared with, or no plain type.
    """
    columns = {each.name: each for each in table.columns}
    kinds = _compared_as(rows, join, columns)
    # mapInArrow fails on column names with a dot, as those of joins: rename them.
    plain = {each.name: f"{_OWN}{number}" for number, each in enumerate(join.columns)}
    rows = rows.toDF(*(plain.get(name, name) for name in rows.columns))
    # Every column is nullable: rows that carry reports have nulls everywhere else.
    own = [
        StructField(each.name, each.dataType)
        for each in rows.schema
        if not each.name.startswith((KEY, CAN_MATCH))
    ]
    wanted = {name: _kind(columns[name]) for name in join.matches}
    found = {}
    for number, each in enumerate(join.found):
        name = unquoted(each.sql)
        wanted[name] = _kind(columns[name])
        found[name] = f"{_FOUND}{number}"
        plain[each.name] = found[name]
    out = StructType([*own, *(StructField(new, wanted[name]) for name, new in found.items())])
    step = ReferenceStep(
        operator=operator,
        kind=join.kind,
        table=PinnedTable(
            schema=to_arrow_schema(
                StructType([StructField(name, kind) for name, kind in wanted.items()]),
                timezone="UTC",
            ),
            files=tuple((pin.key_of(file), file) for file in pin.files) if pin else (),
            store=store,
        ),
        matches=join.matches,
        kinds=kinds,
        found=tuple(found.items()),
        schema=to_arrow_schema(out, timezone="UTC"),
    )
    joined = rows.mapInArrow(step, out)
    names = {new: name for name, new in plain.items()}
    return joined.toDF(*(names.get(name, name) for name in joined.columns))


def _kind(column: Column) -> DataType:
    return DataType.fromDDL(column.type)


def _compared_as(
    rows: DataFrame, join: ReferenceJoin, columns: dict[str, Column]
) -> tuple[pa.DataType, ...]:
    """The types that keys are compared in: the type of both sides, or BIGINT for integers."""
    found = []
    for number, name in enumerate(join.matches):
        mine, theirs = rows.schema[f"{KEY}{number}"].dataType, _kind(columns[name])
        if isinstance(mine, IntegralType) and isinstance(theirs, IntegralType):
            found.append(to_arrow_type(LongType()))
            continue
        if mine != theirs:
            what = f"`{join.keys[number]}` is {mine.simpleString()}"
            other = f"`{join.table}`.`{name}` is {theirs.simpleString()}"
            raise WrongType(f"{what}, and {other}: CAST the first")
        if isinstance(mine, FloatType | DoubleType) or not _is_plain(mine):
            raise WrongType(f"a {mine.simpleString()} such as `{name}` cannot be compared by")
        found.append(to_arrow_type(mine, timezone="UTC"))
    return tuple(found)


def _is_plain(kind: DataType) -> bool:
    return kind.typeName() not in ("array", "map", "struct", "variant", "void", "interval")

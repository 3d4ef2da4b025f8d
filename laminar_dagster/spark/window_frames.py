"""A window aggregate as frames of Spark: from records to partials, buckets, and closed windows.

::

    records --PartialStep--> partials --bucket by key--> BucketStep --> closed windows
    (or the scan made the partials already: see ``early_partials``)
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.model import Projection, WindowAggregate
from laminar_dagster.config.operators import partials_of
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.bucket_step import CONTROL_BUCKET, BucketStep
from laminar_dagster.spark.columns import BUCKET, CONTROL, EARLY, END, KEEP, PART, TIME, quoted
from laminar_dagster.spark.early_partials import EarlyWindow, carrier
from laminar_dagster.spark.partial_step import PartialStep, WindowPartials
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.window_shapes import argument_columns, finished_sql, shape_of


def window_inputs(query: WindowAggregate) -> tuple[Projection, ...]:
    """What a window needs of each record: its time, its keys, the arguments of its aggregates."""
    arguments = (Projection(name, sql) for sql, name in argument_columns(query).items())
    return (Projection(TIME, f"unix_micros({query.window.time})"), *query.keys, *arguments)


def partials_of_records(
    records: DataFrame, query: WindowAggregate, operator: OperatorId
) -> tuple[DataFrame, StateShape]:
    """Partials of records that have ``window_inputs``, made in Python on the executors."""
    types = {each.name: each.type for each in to_arrow_schema(records.schema, timezone="UTC")}
    shape = shape_of(operator, query, types)
    step = WindowPartials(shape, query.window.size_micros, query.window.slide_micros)
    frame = _one_zero(records, query, types)
    return frame.mapInArrow(PartialStep(step), from_arrow_schema(step.schema)), shape


def partials_of_scan(
    scanned: DataFrame, number: int, window: EarlyWindow
) -> tuple[DataFrame, StateShape]:
    """The partials that a scan made, and its reports."""
    mine = scanned.where(f"{EARLY} = {number} OR {CONTROL} IS NOT NULL")
    columns = (
        f"{quoted(carrier(number, name))} AS {quoted(name)}"
        for name in window.partials.schema.names
    )
    return mine.selectExpr(*columns), window.partials.shape


def closed_windows(partials: DataFrame, step: BucketStep, buckets: int) -> DataFrame:
    """Take every bucket through the epoch. Reports go to each of them, and on to the driver."""
    bucket = bucket_of(step.shape, buckets)
    every = f"sequence({CONTROL_BUCKET}L, {buckets - 1}L)"
    placed = partials.selectExpr(
        "*", f"explode(IF({CONTROL} IS NULL, array({bucket}), {every})) AS {BUCKET}"
    )
    # One row for each bucket, so that windows close also where no record came.
    markers = partials.sparkSession.range(buckets).selectExpr(f"id AS {BUCKET}")
    return advanced_buckets(placed.unionByName(markers, allowMissingColumns=True), step)


def bucket_of(shape: StateShape, buckets: int) -> str:
    """The bucket that a row's key belongs to, as Spark SQL. A state on disk depends on it."""
    keys = [quoted(key.name) for key in shape.keys]
    return f"CAST(pmod(xxhash64({', '.join(keys)}), {buckets}) AS BIGINT)" if keys else "0L"


def advanced_buckets(rows: DataFrame, step: BucketStep) -> DataFrame:
    """Hand the rows of each ``_bucket`` to the step, all of a bucket at once."""
    # Spark asks for the columns by name, and takes a dot in it for a field of a struct.
    names = rows.columns
    plain = [f"c{number}" for number in range(len(names))]
    # Spark counts the arguments of what it is given, and takes ``self`` for one.
    return (
        rows.toDF(*plain)
        .groupBy(plain[names.index(BUCKET)])
        .applyInArrow(
            lambda table: step(table.rename_columns(names)), from_arrow_schema(step.schema)
        )
    )


def finished_windows(closed: DataFrame, query: WindowAggregate, shape: StateShape) -> DataFrame:
    """Closed windows with the values of keys and aggregates, for HAVING and the output columns."""
    size = query.window.size_micros
    types = {column.name: column.argument_type for column in shape.columns}
    return closed.selectExpr(
        PART,
        CONTROL,
        f"{CONTROL} IS NULL AS {KEEP}",
        f"timestamp_micros({END} - {size}) AS window_start",
        f"timestamp_micros({END}) AS window_end",
        *(quoted(key.name) for key in query.keys),
        *(
            f"{finished_sql(each, types[partials_of(each)[0].name])} AS {quoted(each.name)}"
            for each in query.aggregates
        ),
    )


def _one_zero(
    records: DataFrame, query: WindowAggregate, types: dict[str, pa.DataType]
) -> DataFrame:
    """SQL knows one zero; bytes know two."""
    floats = {key.name for key in query.keys if pa.types.is_floating(types[key.name])}
    if not floats:
        return records
    return records.selectExpr(
        *(
            f"IF(`{name}` = 0, abs(`{name}`), `{name}`) AS `{name}`"
            if name in floats
            else f"`{name}`"
            for name in records.columns
        )
    )

"""An aggregation as frames of Spark: from records to partials, buckets, and what comes out.

::

    records --PartialStep--> partials --bucket by key--> BucketStep --> closed windows, or changes
    (or the scan made the partials already: see ``early_partials``)
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.model import (
    Aggregation,
    KeyedAggregate,
    Projection,
    Ranked,
    Stateful,
    WindowAggregate,
)
from laminar_dagster.config.operators import partials_of, time_of
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregation_shapes import (
    argument_columns,
    assignment_of,
    finished_sql,
    keyed_shape_of,
    ranked_columns,
    ranked_shape_of,
    shape_of,
)
from laminar_dagster.spark.bucket_step import CONTROL_BUCKET, BucketStep
from laminar_dagster.spark.columns import (
    BUCKET,
    CONTROL,
    EARLY,
    END,
    FIRST,
    HASH,
    KEEP,
    PART,
    TIME,
    quoted,
)
from laminar_dagster.spark.early_partials import EarlyWindow, carrier
from laminar_dagster.spark.keyed_partials import KeyedPartials
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.partial_step import PartialStep, WindowPartials
from laminar_dagster.spark.ranked_shape import RANK
from laminar_dagster.spark.state_shape import StateShape


def inputs_of_records(query: Stateful) -> tuple[Projection, ...]:
    """What is needed of a record: its time, its keys, the arguments of aggregates, its weight."""
    time = time_of(query)
    found = [Projection(TIME, f"unix_micros({time})")] if time is not None else []
    found += query.keys
    if isinstance(query, Ranked):
        found += [Projection(name, sql) for name, sql in ranked_columns(query).items()]
    else:
        found += [Projection(name, sql) for sql, name in argument_columns(query).items()]
    if isinstance(query, KeyedAggregate) and query.weight is not None:
        found.append(Projection(WEIGHT, query.weight))
    return tuple(found)


def partials_of_records(
    records: DataFrame, query: WindowAggregate, operator: OperatorId
) -> tuple[DataFrame, StateShape]:
    """Partials of records that have ``inputs_of_records``, made in Python on the executors."""
    types = {each.name: each.type for each in to_arrow_schema(records.schema, timezone="UTC")}
    shape = shape_of(operator, query, types)
    step = WindowPartials(shape, assignment_of(query.window))
    frame = _one_zero(records, query, types)
    return frame.mapInArrow(PartialStep(step), from_arrow_schema(step.schema)), shape


def keyed_partials_of_records(
    records: DataFrame, query: KeyedAggregate | Ranked, operator: OperatorId
) -> tuple[DataFrame, KeyedShape]:
    """As ``partials_of_records``, for a state that is kept by key."""
    types = {each.name: each.type for each in to_arrow_schema(records.schema, timezone="UTC")}
    if isinstance(query, Ranked):
        step = KeyedPartials(ranked_shape_of(operator, query, types))
    else:
        windows = assignment_of(query.window) if query.window else None
        step = KeyedPartials(keyed_shape_of(operator, query, types), windows)
    shape = step.shape
    frame = _one_zero(records, query, types)
    made = frame.mapInArrow(PartialStep(step), from_arrow_schema(step.schema))
    return made.selectExpr("*", f"{hash_of_keys(shape)} AS {HASH}"), shape


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


def advanced_state(partials: DataFrame, step: BucketStep, buckets: int) -> DataFrame:
    """Take every bucket through the epoch. Reports go to each of them, and on to the driver."""
    bucket = bucket_of(step.shape, buckets)
    every = f"sequence({CONTROL_BUCKET}L, {buckets - 1}L)"
    placed = partials.selectExpr(
        "*", f"explode(IF({CONTROL} IS NULL, array({bucket}), {every})) AS {BUCKET}"
    )
    # One row for each bucket, so that windows close also where no record came.
    markers = partials.sparkSession.range(buckets).selectExpr(f"id AS {BUCKET}")
    return advanced_buckets(placed.unionByName(markers, allowMissingColumns=True), step)


def hash_of_keys(shape: StateShape | KeyedShape) -> str:
    """The hash of a row's key, as Spark SQL. A state on disk depends on it."""
    keys = [quoted(key.name) for key in shape.keys]
    return f"xxhash64({', '.join(keys)})" if keys else "0L"


def bucket_of(shape: StateShape | KeyedShape, buckets: int) -> str:
    """The bucket that a row's key belongs to, as Spark SQL. A state on disk depends on it."""
    return f"CAST(pmod({hash_of_keys(shape)}, {buckets}) AS BIGINT)" if shape.keys else "0L"


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
    start = assignment_of(query.window).start_sql(END)
    return closed.selectExpr(*_OWN, *_edges(start), *_finished(query, shape))


def finished_groups(changed: DataFrame, query: KeyedAggregate, shape: KeyedShape) -> DataFrame:
    """Rows of a keyed state with their values, for HAVING and the output columns."""
    edges: tuple[str, ...] = ()
    if query.kind == "session":
        edges = _edges(FIRST)
    elif query.window:
        edges = _edges(assignment_of(query.window).start_sql(END))
    return changed.selectExpr(*_OWN, WEIGHT, *edges, *_finished(query, shape))


def finished_ranks(changed: DataFrame, query: Ranked) -> DataFrame:
    """The first rows of each key under the names of the query."""
    found = [
        f"{quoted(f'_p{number}')} AS {quoted(each.name)}"
        for number, each in enumerate(query.columns)
    ]
    found += [f"{RANK} AS {quoted(query.rank)}"] if query.rank is not None else []
    return changed.selectExpr(*_OWN, *found, WEIGHT)


_OWN: Final = (PART, CONTROL, f"{CONTROL} IS NULL AS {KEEP}")


def _edges(start: str) -> tuple[str, ...]:
    return (
        f"timestamp_micros({start}) AS window_start",
        f"timestamp_micros({END}) AS window_end",
    )


def _finished(query: Aggregation, shape: StateShape | KeyedShape) -> list[str]:
    is_weighed = isinstance(query, KeyedAggregate) and query.weight is not None
    types = {column.name: column.argument_type for column in shape.columns}
    found = [quoted(key.name) for key in query.keys]
    for each in query.aggregates:
        kind = types[partials_of(each, is_weighed=is_weighed)[0].name]
        value = finished_sql(each, kind, is_weighed=is_weighed)
        found.append(f"{value} AS {quoted(each.name)}")
    return found


def _one_zero(records: DataFrame, query: Stateful, types: dict[str, pa.DataType]) -> DataFrame:
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

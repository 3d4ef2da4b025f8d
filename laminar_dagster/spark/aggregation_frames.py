"""An aggregation as Spark frames: from records to partials, buckets, and output.

::

    records --PartialStep--> partials --bucket by key--> BucketStep --> closed windows, or changes
    (or the scan made the partials already: see ``early_partials``)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.operators import time_of
from laminar_dagster.config.partials import partials_of
from laminar_dagster.config.relations import (
    Aggregation,
    KeyedAggregate,
    Projection,
    Ranked,
    Stateful,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregate_types import finished_sql
from laminar_dagster.spark.aggregation_shapes import (
    TOUCHING,
    assignment_of,
    carried_columns,
    partials_for,
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
from laminar_dagster.spark.early_partials import EarlyOperator, carrier
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.ranked_shape import RANK
from laminar_dagster.spark.state_shape import StateShape


def inputs_of_records(query: Stateful) -> tuple[Projection, ...]:
    """The columns needed of a record: time, keys, the arguments of aggregates, and weight."""
    time = time_of(query)
    found = [Projection(TIME, f"unix_micros({time})")] if time is not None else []
    found += [Projection(name, sql) for name, sql in carried_columns(query).items()]
    return tuple(found)


def partials_of_records(
    records: DataFrame, query: Stateful, operator: OperatorId, growth: Growth | None
) -> tuple[DataFrame, StateShape | KeyedShape]:
    """Partials of records that have ``inputs_of_records``, made in Python on the executors."""
    types = {each.name: each.type for each in to_arrow_schema(records.schema, timezone="UTC")}
    step = partials_for(operator, query, types, growth)
    frame = one_zero(records, query.keys, types)
    made = frame.mapInArrow(PartialStep(step), from_arrow_schema(step.schema))
    return _hashed(made, step.shape), step.shape


def partials_of_scan(
    scanned: DataFrame, number: int, early: EarlyOperator
) -> tuple[DataFrame, StateShape | KeyedShape]:
    """The partials that a scan made for an operator, and the scan's reports."""
    mine = scanned.where(f"{EARLY} = {number} OR {CONTROL} IS NOT NULL")
    columns = (
        f"{quoted(carrier(number, name))} AS {quoted(name)}" for name in early.partials.schema.names
    )
    return _hashed(mine.selectExpr(*columns), early.partials.shape), early.partials.shape


def _hashed(partials: DataFrame, shape: StateShape | KeyedShape) -> DataFrame:
    """Partials with the hash of their key, if their state is looked up by hash."""
    if not isinstance(shape, KeyedShape):
        return partials
    return partials.selectExpr("*", f"{hash_of_keys(shape)} AS {HASH}")


def advanced_state(
    partials: DataFrame, step: BucketStep, buckets: int, *, has_reports: bool
) -> DataFrame:
    """Advance every bucket by the epoch. Reports are sent to each bucket and to the driver.

    Args:
        partials: New rows of the state, and reports.
        step: What advances a bucket.
        buckets: The number of buckets.
        has_reports: Whether at least one report is sure to be among the rows.
    """
    bucket = bucket_of(step.shape, buckets)
    every = f"sequence({CONTROL_BUCKET}L, {buckets - 1}L)"
    names = [*partials.columns, BUCKET]
    plain = _plain(names)
    placed = partials.selectExpr(
        *(f"{quoted(name)} AS {own}" for name, own in zip(names[:-1], plain[:-1], strict=True)),
        f"explode(IF({CONTROL} IS NULL, array({bucket}), {every})) AS {plain[-1]}",
    )
    if not has_reports:
        # Without records windows may close, too, where a partition has become idle: one row for
        # each bucket makes Spark call the step for it.
        markers = partials.sparkSession.range(buckets).selectExpr(f"id AS {plain[-1]}")
        placed = placed.unionByName(markers, allowMissingColumns=True)
    return _stepped(placed, names, step)


def hash_of_keys(shape: StateShape | KeyedShape | JoinShape) -> str:
    """The hash of a row's key, as Spark SQL. Stored state depends on it: it must not change."""
    keys = [quoted(key.name) for key in shape.keys]
    return f"xxhash64({', '.join(keys)})" if keys else "0L"


def bucket_of(shape: StateShape | KeyedShape | JoinShape, buckets: int) -> str:
    """The bucket of a row's key, as Spark SQL. Stored state depends on it: it must not change."""
    return f"CAST(pmod({hash_of_keys(shape)}, {buckets}) AS BIGINT)" if shape.keys else "0L"


def advanced_buckets(rows: DataFrame, step: BucketStep) -> DataFrame:
    """Call the step once for each ``_bucket``, with all rows of that bucket."""
    names = rows.columns
    return _stepped(rows.toDF(*_plain(names)), names, step)


def _plain(names: Sequence[str]) -> list[str]:
    """Names for applyInArrow, which reads a dot in a column's name as a struct field."""
    return [f"c{number}" for number in range(len(names))]


def _stepped(rows: DataFrame, names: list[str], step: BucketStep) -> DataFrame:
    """Call the step for each bucket of rows whose columns have plain names."""
    # A lambda: Spark counts the parameters of a function, and would count ``self`` of the step.
    bucket = _plain(names)[names.index(BUCKET)]
    return rows.groupBy(bucket).applyInArrow(
        lambda table: step(table.rename_columns(names)), from_arrow_schema(step.schema)
    )


def finished_windows(closed: DataFrame, query: WindowAggregate, shape: StateShape) -> DataFrame:
    """Closed windows with the values of keys and aggregates, for HAVING and the output columns."""
    start = assignment_of(query.window).start_sql(END)
    return closed.selectExpr(*_OWN, *_edges(start), *_finished(query, shape))


def finished_groups(changed: DataFrame, query: KeyedAggregate, shape: KeyedShape) -> DataFrame:
    """Rows of a keyed state with their values, for HAVING and the output columns."""
    edges: tuple[str, ...] = ()
    if query.kind == "session":
        edges = _edges(FIRST, f"{END} - {TOUCHING}")
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


def _edges(start: str, end: str = END) -> tuple[str, ...]:
    return (
        f"timestamp_micros({start}) AS window_start",
        f"timestamp_micros({end}) AS window_end",
    )


def _finished(query: Aggregation, shape: StateShape | KeyedShape) -> list[str]:
    is_weighed = query.weight is not None
    types = {column.name: column.argument_type for column in shape.columns}
    found = [quoted(key.name) for key in query.keys]
    for each in query.aggregates:
        partials = [partial.name for partial in partials_of(each, is_weighed=is_weighed)]
        value = finished_sql(each, types[partials[0]], is_weighed=is_weighed)
        known = shape.growth.is_known(partials) if shape.growth else None
        value = f"IF({known}, {value}, NULL)" if known else value
        found.append(f"{value} AS {quoted(each.name)}")
    return found


def one_zero(
    records: DataFrame, keys: Sequence[Projection], types: dict[str, pa.DataType]
) -> DataFrame:
    """Records with -0.0 as 0.0 in keys: they are one value in SQL, but hash differently."""
    floats = {key.name for key in keys if pa.types.is_floating(types[key.name])}
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

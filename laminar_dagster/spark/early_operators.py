"""Decides, on the driver, which operators the scan of their source can pre-aggregate."""

from __future__ import annotations

import pyarrow as pa

from laminar_dagster.config.operators import time_of
from laminar_dagster.config.relations import Stateful
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregation_shapes import carried_columns, partials_for
from laminar_dagster.spark.arrow_predicates import column_name, predicate
from laminar_dagster.spark.columns import TIME
from laminar_dagster.spark.early_partials import EarlyOperator
from laminar_dagster.spark.growth import Growth
from laminar_dagster.spark.late_records import lateness_of_records


def early_operator(
    operator: OperatorId, query: Stateful, schema: pa.Schema, growth: Growth | None = None
) -> EarlyOperator | None:
    """What a scan needs to pre-aggregate the operator; None if Spark has to do it.

    Args:
        operator: The operator's id.
        query: An aggregation or ranking directly over a source.
        schema: The schema of the source.
        growth: The partials added to the operator's state after it began.
    """
    columns = _plain_columns(query, schema)
    if columns is None:
        return None
    types = {name: schema.field(column).type for name, column in columns.items()}
    # 0.0 and -0.0 are one key in SQL, but two in Arrow.
    if any(pa.types.is_floating(types[key.name]) for key in query.keys):
        return None
    keep = predicate(query.where, schema) if query.where else None
    if query.where and keep is None:
        return None
    partials = partials_for(operator, query, types, growth)
    return EarlyOperator(partials, columns, keep, lateness_of_records(query))


def _plain_columns(query: Stateful, schema: pa.Schema) -> dict[str, str] | None:
    """The source columns that an operator reads; None if it reads anything but plain columns."""
    columns: dict[str, str] = {}
    wanted = carried_columns(query)
    time = time_of(query)
    if time is not None:
        wanted = {TIME: time, **wanted}
    for name, sql in wanted.items():
        found = column_name(sql, schema)
        if found is None:
            return None
        columns[name] = found
    if time is not None and not pa.types.is_timestamp(schema.field(columns[TIME]).type):
        return None
    return columns

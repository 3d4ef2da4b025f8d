"""Which windows can be aggregated where their source is read: decided on the driver."""

from __future__ import annotations

import pyarrow as pa

from laminar_dagster.config.model import WindowAggregate
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.aggregation_shapes import argument_columns, assignment_of, shape_of
from laminar_dagster.spark.arrow_predicates import column_name, predicate
from laminar_dagster.spark.columns import TIME
from laminar_dagster.spark.early_partials import EarlyWindow
from laminar_dagster.spark.partial_step import WindowPartials


def early_window(
    operator: OperatorId, query: WindowAggregate, schema: pa.Schema
) -> EarlyWindow | None:
    """The window, if it can be aggregated where the source is read; None if Spark is needed.

    Args:
        operator: Its name.
        query: A window directly over a source.
        schema: Of the source.
    """
    time = column_name(query.window.time, schema)
    if time is None or not pa.types.is_timestamp(schema.field(time).type):
        return None
    columns = {TIME: time}
    wanted = {key.name: key.sql for key in query.keys}
    wanted |= {name: sql for sql, name in argument_columns(query).items()}
    for name, sql in wanted.items():
        found = column_name(sql, schema)
        if found is None:
            return None
        columns[name] = found
    types = {name: schema.field(column).type for name, column in columns.items()}
    # SQL knows one zero; bytes know two.
    if any(pa.types.is_floating(types[key.name]) for key in query.keys):
        return None
    keep = predicate(query.where, schema) if query.where else None
    if query.where and keep is None:
        return None
    shape = shape_of(operator, query, types)
    partials = WindowPartials(shape, assignment_of(query.window))
    return EarlyWindow(partials, columns, keep)

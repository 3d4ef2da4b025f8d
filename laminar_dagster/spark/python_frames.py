"""Models in Python as frames of Spark.

::

    records --ModelStep--> rows
    records --PartialStep--> pending rows --bucket by key--> OperatorStep --> output
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from laminar_dagster.config.relations import Projection, Python, PythonFile, PythonKeyed
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.models.declarations import KeyedOperator
from laminar_dagster.spark.aggregate_types import WrongType
from laminar_dagster.spark.aggregation_frames import hash_of_keys, one_zero
from laminar_dagster.spark.columns import CONTROL, HASH, KEEP, PART, TIME, quoted
from laminar_dagster.spark.model_step import ModelStep
from laminar_dagster.spark.operator_shape import OperatorShape, taken_column
from laminar_dagster.spark.operator_step import OperatorRows, OperatorStep
from laminar_dagster.spark.operators import Operators
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.state_shape import KeyColumn


def _code_of(file: PythonFile) -> ModelCode:
    """The code of a file, as executors get it."""
    return ModelCode(file.file, file.text)


def rows_of_model(records: DataFrame, view: OperatorId, query: Python) -> DataFrame:
    """The output of a model's function over records."""
    step = ModelStep(view, _code_of(query.python))
    return records.mapInArrow(step, from_arrow_schema(step.schema))


def inputs_of_operator(query: PythonKeyed) -> tuple[Projection, ...]:
    """What an operator reads of a record: event time, keys, and the columns in ``takes``."""
    time = Projection(TIME, f"unix_micros({query.time})")
    taken = (
        Projection(taken_column(place), quoted(name)) for place, name in enumerate(query.takes)
    )
    return (time, *query.keys, *taken)


def rows_of_operator(
    records: DataFrame,
    query: PythonKeyed,
    operator: OperatorId,
    operators: Operators,
) -> DataFrame:
    """The output of a keyed operator over records with the columns of ``inputs_of_operator``.

    Raises:
        WrongType: A column is of a type that has no order.
    """
    waiting, shape = _waiting(records, query, operator)
    step = OperatorStep(
        shape=shape,
        **operators.ground(operator, query.source),
        lateness=query.lateness_micros,
        code=_code_of(query.python),
    )
    operators.count(operator, query.source)
    put_out = operators.advance(waiting, operator, step)
    names = map(quoted, query.columns)
    return put_out.selectExpr(PART, CONTROL, f"{CONTROL} IS NULL AS {KEEP}", *names)


def _waiting(
    records: DataFrame, query: PythonKeyed, operator: OperatorId
) -> tuple[DataFrame, OperatorShape]:
    """Records as rows of the operator's state, pending until the watermark passes them."""
    types = {each.name: each.type for each in to_arrow_schema(records.schema, timezone="UTC")}
    shape = _shape(operator, query, types)
    step = OperatorRows(shape)
    frame = one_zero(records, query.keys, types)
    made = frame.mapInArrow(PartialStep(step), from_arrow_schema(step.schema))
    return made.selectExpr("*", f"{hash_of_keys(shape)} AS {HASH}"), shape


def _shape(
    operator: OperatorId, query: PythonKeyed, types: dict[str, pa.DataType]
) -> OperatorShape:
    found = declared(_code_of(query.python))
    assert isinstance(found, KeyedOperator)
    named = zip(query.keys, found.keys, strict=True)
    keys = tuple(KeyColumn(key.name, name, types[key.name]) for key, name in named)
    taken = tuple((name, types[taken_column(place)]) for place, name in enumerate(query.takes))
    for name, kind in (*((key.sql, key.arrow_type) for key in keys), *taken):
        if pa.types.is_nested(kind):
            problem = f"`{name}` is of type {kind}, which has no order"
            raise WrongType(f"{problem}: leave it out of `takes`, or make text of it in a view")
    kept = tuple((each.name, each.type) for each in found.state)
    return OperatorShape(
        operator, keys, (), "operator", time=found.event_time, values=kept, taken=taken
    )

"""Models in Python: what a file in a pipeline's ``models/`` imports. See docs/python-models.md.

``model`` makes a view of a function from table to table; ``keyed_operator`` makes one of a class
that keeps state for each key and has timers on event time. Tables are Arrow's, or pandas' data
frames where a function says so. Neither Spark nor Dagster is needed to import, run or test them.
"""

from laminar_dagster.models.columns import TIMESTAMP
from laminar_dagster.models.declarations import (
    InvalidModel,
    KeyedOperator,
    RowModel,
    keyed_operator,
    model,
    operator_of,
)
from laminar_dagster.models.step import Step

__all__ = [
    "TIMESTAMP",
    "InvalidModel",
    "KeyedOperator",
    "RowModel",
    "Step",
    "keyed_operator",
    "model",
    "operator_of",
]

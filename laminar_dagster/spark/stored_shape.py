"""Reads from a state file's metadata which shape (row layout) it was written with."""

from __future__ import annotations

import json

import pyarrow as pa

from laminar_dagster.spark.growth import METADATA
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.operator_shape import OperatorShape
from laminar_dagster.spark.ranked_shape import RankedShape
from laminar_dagster.spark.state_shape import StateShape


def stored_shape(schema: pa.Schema) -> StateShape | KeyedShape | JoinShape:
    """Return the shape described by a state file's schema metadata.

    Raises:
        KeyError, TypeError, ValueError: It is not a state file.
    """
    about = json.loads(schema.metadata[METADATA])
    match about.get("kind"):
        case None:
            return StateShape.of_file(schema)
        case "join":
            return JoinShape.of_file(schema)
        case "rank":
            return RankedShape.of_file(schema)
        case "operator":
            return OperatorShape.of_file(schema)
        case _:
            return KeyedShape.of_file(schema)

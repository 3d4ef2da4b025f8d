"""The shape that a stored file of state was written with, of either kind."""

from __future__ import annotations

import json

import pyarrow as pa

from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.state_shape import METADATA, StateShape


def stored_shape(schema: pa.Schema) -> StateShape | KeyedShape:
    """The shape of a file.

    Raises:
        KeyError, TypeError, ValueError: It is no file of state.
    """
    about = json.loads(schema.metadata[METADATA])
    return KeyedShape.of_file(schema) if "kind" in about else StateShape.of_file(schema)

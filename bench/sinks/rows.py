"""What is written: flat rows of five columns, the same ones for a sink and for its peers."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa

from bench.clickstream import START
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.spark.arrow_files import file_bytes
from laminar_dagster.testing.sink_places import staged_bytes

SINK: Final = SinkId("own")
KEY: Final = "id"
# Of an epoch.
ROWS: Final = 200_000
_PAGES: Final = 1_000

Values = tuple[int, datetime, str, float, int]


def flat_rows(count: int) -> pa.Table:
    """So many rows, each with an id of its own; amounts are multiples of a quarter."""
    chance = np.random.default_rng(count)
    moments = np.datetime64(START.replace(tzinfo=None), "us") + np.arange(count) * 1_000
    pages = pa.array([f"/page/{number:08}" for number in range(_PAGES)])
    return pa.table(
        {
            KEY: pa.array(np.arange(count)),
            "at": pa.array(moments).cast(pa.timestamp("us", tz="UTC")),
            "page": pages.take(pa.array(chance.integers(0, _PAGES, count))),
            "amount": pa.array(chance.integers(0, 40_000, count) / 4),
            "n": pa.array(chance.integers(0, 10, count), pa.int32()),
        }
    )


def staged(table: pa.Table) -> StagedOutput:
    """The rows as an epoch stages them: an Arrow file, in memory."""
    return staged_bytes((file_bytes(table),), [table.num_rows], SINK)


def without_zone(table: pa.Table) -> pa.Table:
    """The same moments, for who has no type with a zone."""
    place = table.schema.get_field_index("at")
    return table.set_column(place, "at", table.column("at").cast(pa.timestamp("us")))


def as_tuples(table: pa.Table) -> list[Values]:
    """The rows as a plain client takes them."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

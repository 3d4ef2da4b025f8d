"""One bucket of a keyed operator, taken from epoch to epoch as the engine does it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pyarrow as pa

from laminar_dagster.config.partials import ROWS_BY_WEIGHT, Partial
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.spark.aggregate_types import column_of
from laminar_dagster.spark.aggregates import PartialColumn
from laminar_dagster.spark.columns import BUCKET, CONTROL, HASH, KEEP, PART, TIME
from laminar_dagster.spark.keyed_partials import KeyedPartials
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.keyed_shape import KeyedShape, Kind
from laminar_dagster.spark.keyed_step import KeyedStep
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.ranked_shape import RankedShape
from laminar_dagster.spark.row_order import Place
from laminar_dagster.spark.state_shape import KeyColumn
from laminar_dagster.spark.watermarks import Lane, SourceClock
from laminar_dagster.spark.window_assignment import WindowAssignment
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.spark.step_reports import state_and_rows

# Time, key, value and weight of a record.
Record = tuple[int, str | None, int | None, int]


def shape_of_sums(kind: Kind = "group", gap: int | None = None, *, weighed: bool) -> KeyedShape:
    """A count and a sum by key; weighed, or with the largest value."""
    partials = [Partial("count", None, weighed), Partial("sum", "x", weighed)]
    partials += [Partial("count", "x", True)] if weighed else [Partial("max", "x")]
    columns = tuple(
        column_of(each, *((["_x0"], [pa.int64()]) if each.argument else ([], [])))
        for each in partials
    )
    weight = ROWS_BY_WEIGHT.name if weighed else None
    keys = (KeyColumn("_k0", "k", pa.string()),)
    return KeyedShape(OperatorId("sums"), keys, columns, kind, gap, weight)


def shape_of_ranks(
    limit: int, gap: int | None, *, descending: bool, weighed: bool = False
) -> RankedShape:
    """The first records of each key by their value, nulls last, with their times."""
    columns = tuple(
        PartialColumn(name, name, "min", "min", pa.int64(), pa.int64()) for name in ("_o0", "_p0")
    )
    keys = (KeyColumn("_k0", "k", pa.string()),)
    order = (Place("_o0", descending, False),)
    weight = ROWS_BY_WEIGHT.name if weighed else None
    columns += (PartialColumn(weight, None, "count", "sum", pa.int64()),) if weight else ()
    return RankedShape(
        OperatorId("ranks"), keys, columns, "rank", gap, weight, order=order, limit=limit
    )


@dataclass
class Operator:
    """Keeps what a manifest would."""

    shape: KeyedShape
    emits: Any = "changes"
    windows: WindowAssignment | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    files: tuple[PartitionSnapshotEntry, ...] = ()
    watermark: int | None = None
    epoch: int = 0
    hashes: int = 2**62

    def run(self, records: list[Record], watermark: int) -> list[dict[str, Any]]:
        """An epoch; what comes out of it, in order."""
        self.epoch += 1
        attempt = CheckpointId.from_parts(self.epoch, self.epoch)
        made = PartialStep(KeyedPartials(self.shape, self.windows))
        partials = pa.Table.from_batches(list(made(iter([_batch(records, watermark)]))))
        keys = partials.column("_k0").to_pylist()
        found = [crc32(repr(key).encode()) * 2**30 % self.hashes for key in keys]
        bucket = partials.append_column(HASH, pa.array(found, pa.int64()))
        step = KeyedStep(
            shape=self.shape,
            clocks=(SourceClock("s", self.watermark, (Lane(0, self.watermark, False),)),),
            chains={0: tuple(encode_part(each) for each in self.files)},
            attempt=attempt,
            store=self.store,
            emits=self.emits,
        )
        out = step(bucket.append_column(BUCKET, pa.array([0] * bucket.num_rows, pa.int64())))
        self.files, rows = state_and_rows(out, attempt, self.epoch)
        self.watermark = watermark
        return rows


def _batch(records: list[Record], watermark: int) -> pa.RecordBatch:
    control = json.dumps({"source": "s", "part": 0, "watermark": watermark})
    count = len(records)
    return pa.record_batch(
        {
            PART: pa.array([0] * (count + 1), pa.int64()),
            CONTROL: pa.array([None] * count + [control], pa.string()),
            KEEP: pa.array([True] * count + [False]),
            TIME: pa.array([each[0] for each in records] + [None], pa.int64()),
            "_k0": pa.array([each[1] for each in records] + [None], pa.string()),
            "_x0": pa.array([each[2] for each in records] + [None], pa.int64()),
            "_x1": pa.array([each[0] for each in records] + [None], pa.int64()),
            "_o0": pa.array([each[2] for each in records] + [None], pa.int64()),
            "_p0": pa.array([each[0] for each in records] + [None], pa.int64()),
            WEIGHT: pa.array([each[3] for each in records] + [None], pa.int8()),
        }
    )

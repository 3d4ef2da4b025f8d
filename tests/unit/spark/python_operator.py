"""One bucket of an operator in Python, taken from epoch to epoch as the engine does it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pyarrow as pa

from laminar_dagster.core.document import encode_part
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.models.declarations import KeyedOperator
from laminar_dagster.spark.columns import BUCKET, CONTROL, HASH, KEEP, PART, TIME
from laminar_dagster.spark.operator_shape import OperatorShape, taken_column
from laminar_dagster.spark.operator_step import OperatorRows, OperatorStep
from laminar_dagster.spark.partial_step import PartialStep
from laminar_dagster.spark.state_shape import KeyColumn
from laminar_dagster.spark.watermarks import Lane, SourceClock
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.spark.step_reports import state_and_rows

# Time in microseconds, key and value of a record.
Record = tuple[int, str | None, int]

CODE = """
from datetime import timedelta
import pyarrow as pa
import pyarrow.compute as pc
from laminar_dagster.models import TIMESTAMP, Step, keyed_operator

@keyed_operator(
    reads="clicks",
    keys=["user"],
    event_time="at",
    state={"total": pa.int64()},
    columns={"what": pa.string(), "total": pa.int64()},
    ttl=timedelta(microseconds=TTL),
)
class Totals:
    # A value says what to do: 0 ends the key, below 5 clears its timer, others set it so far ahead.
    def on_rows(self, rows, state):
        n = rows["n"]
        total = pc.add(pc.fill_null(state["total"], 0), n)
        kept = pc.if_else(pc.equal(n, 0), pa.scalar(None, pa.int64()), total)
        ahead = pc.add(rows["at"], pc.multiply(n, 3).cast(pa.duration("us")))
        timer = pc.if_else(pc.less(n, 5), pa.scalar(None, TIMESTAMP), ahead)
        what = pa.array(["row"] * rows.num_rows)
        return Step(state={"total": kept}, timer=timer, rows={"what": what, "total": total})

    def on_timers(self, timers, state):
        what = pa.array(["timer"] * timers.num_rows)
        again = pc.add(timers["at"], pa.scalar(timedelta(microseconds=7)))
        is_odd = pc.equal(pc.bit_wise_and(state["total"], 1), 1)
        return Step(
            state={"total": pc.add(state["total"], 1)},
            timer=pc.if_else(is_odd, again, pa.scalar(None, TIMESTAMP)),
            rows={"what": what, "total": state["total"]},
        )
"""


@dataclass
class PythonBucket:
    """Keeps what a manifest would."""

    ttl: int = 25
    hashes: int = 2**62
    lateness: int = 0
    store: MemoryStore = field(default_factory=MemoryStore)
    files: tuple[PartitionSnapshotEntry, ...] = ()
    watermark: int | None = None
    epoch: int = 0

    @property
    def code(self) -> ModelCode:
        return ModelCode("totals.py", CODE.replace("TTL", str(self.ttl)))

    @property
    def operator(self) -> KeyedOperator:
        found = declared(self.code)
        assert isinstance(found, KeyedOperator)
        return found

    @property
    def shape(self) -> OperatorShape:
        keys = (KeyColumn("_k0", "user", pa.string()),)
        kept, taken = (("total", pa.int64()),), (("n", pa.int64()),)
        return OperatorShape(
            OperatorId("totals"), keys, (), "operator", time="at", values=kept, taken=taken
        )

    def step(self, attempt: CheckpointId, *, moves: bool = True) -> OperatorStep:
        lanes = (Lane(0, self.watermark, False),) if moves else ()
        return OperatorStep(
            shape=self.shape,
            clocks=(SourceClock("s", self.watermark, lanes),),
            chains={0: tuple(encode_part(each) for each in self.files)},
            attempt=attempt,
            store=self.store,
            lateness=self.lateness,
            code=self.code,
        )

    def run(self, records: list[Record], watermark: int) -> list[dict[str, Any]]:
        """An epoch; what comes out of it, in order."""
        self.epoch += 1
        attempt = CheckpointId.from_parts(self.epoch, self.epoch)
        made = PartialStep(OperatorRows(self.shape))
        rows = pa.Table.from_batches(list(made(iter([_batch(records, watermark)]))))
        out = self.step(attempt)(self._placed(rows))
        self.files, found = state_and_rows(out, attempt, self.epoch)
        self.watermark = watermark
        return found

    def rewrite(self) -> None:
        """As a rescale does: all open rows, into one new file."""
        self.epoch += 1
        attempt = CheckpointId.from_parts(self.epoch, self.epoch)
        step = self.step(attempt, moves=False)
        rows = step.chain_of(0).open_rows(step.closed_before)
        count = rows.num_rows
        own = {
            PART: pa.array([0] * count, pa.int64()),
            "_sequence": pa.array([0] * count, pa.int64()),
            CONTROL: pa.nulls(count, pa.string()),
        }
        names = OperatorRows(self.shape).schema.names
        table = pa.table({name: own[name] if name in own else rows[name] for name in names})
        self.files = ()
        if count:
            out = self.step(attempt, moves=False)(self._placed(table))
            self.files, told = state_and_rows(out, attempt, self.epoch)
            assert not told
            assert sum(each.rows or 0 for each in self.files) == count

    def state(self) -> list[dict[str, Any]]:
        """What it keeps of each key."""
        step = self.step(CheckpointId.from_parts(1, 1))
        rows = self.shape.listed(step.chain_of(0).open_rows(step.closed_before))
        found: list[dict[str, Any]] = rows.to_pylist()
        return found

    def _placed(self, rows: pa.Table) -> pa.Table:
        keys = rows.column("_k0").to_pylist()
        found = [crc32(repr(key).encode()) * 2**30 % self.hashes for key in keys]
        placed = rows.append_column(HASH, pa.array(found, pa.int64()))
        return placed.append_column(BUCKET, pa.array([0] * rows.num_rows, pa.int64()))


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
            taken_column(0): pa.array([each[2] for each in records] + [None], pa.int64()),
        }
    )

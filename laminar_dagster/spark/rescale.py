"""Rescales state: redistributes every operator's state over another number of buckets.

::

    old buckets --ChainStep--> open rows --bucket by key--> empty BucketStep --> a file per bucket

One Spark job. A task reads the whole chain of an old bucket or writes a new one: memory holds a
bucket at a time, not the state. Chains are merged to one row for each window and key, so order does
not matter, and the same state gives the same bytes whatever the old number of buckets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.gate import RECORD_ACCOUNTING
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import Violation
from laminar_dagster.spark.aggregation_frames import advanced_buckets, bucket_of, hash_of_keys
from laminar_dagster.spark.arrow_files import BATCH_ROWS
from laminar_dagster.spark.bucket_step import CONTROL_BUCKET, BucketStep
from laminar_dagster.spark.columns import BUCKET, CONTROL, HASH, PART, SEQUENCE
from laminar_dagster.spark.partial_step import control_rows
from laminar_dagster.spark.reports import sort_out


@dataclass(frozen=True, slots=True)
class SpreadState:
    """The state files that a rescale has written, and violations that forbid their use."""

    files: Mapping[OperatorId, tuple[PartitionSnapshotEntry, ...]]
    violations: tuple[Violation, ...]


@dataclass(frozen=True)
class ChainStep:
    """Emits the open rows of old buckets as if they were new partials: for ``mapInArrow``.

    Input: indices into ``buckets``.
    """

    step: BucketStep

    @property
    def buckets(self) -> tuple[int, ...]:
        """The buckets that have state files."""
        return tuple(sorted(self.step.chains))

    @property
    def schema(self) -> pa.Schema:
        """The output schema, the same as that of partials."""
        own = [(PART, pa.int64()), (SEQUENCE, pa.int64()), (CONTROL, pa.string())]
        kept = (each for each in self.step.shape.schema if each.name != HASH)
        return pa.schema([*own, *kept])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read and merge one chain after the other."""
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from self._rows(self.buckets[place])

    def _rows(self, bucket: int) -> Iterator[pa.RecordBatch]:
        try:
            rows = self.step.chain_of(bucket).open_rows(self.step.closed_before)
        except LaminarError as error:
            yield control_rows([json.dumps(error.to_record())], bucket, self.schema)
            return
        moved = {"moved": rows.num_rows, "operator": self.step.shape.operator, "bucket": bucket}
        yield control_rows([json.dumps(moved)], bucket, self.schema)
        own = {
            PART: pa.array(np.full(rows.num_rows, bucket, np.int64)),
            SEQUENCE: pa.array(np.zeros(rows.num_rows, np.int64)),
            CONTROL: pa.nulls(rows.num_rows, pa.string()),
        }
        columns = [own[name] if name in own else rows.column(name) for name in self.schema.names]
        table = pa.table(columns, names=self.schema.names).cast(self.schema)
        yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def spread_job(
    spark: SparkSession, steps: Mapping[OperatorId, BucketStep], buckets: int
) -> DataFrame | None:
    """A frame of reports; collecting it rewrites the state. None when there is no state.

    Args:
        spark: The session.
        steps: The steps of an ordinary epoch, which hold state files, shape and watermarks.
        buckets: The new number of buckets.
    """
    frames = [_spread(spark, step, buckets) for step in steps.values() if step.chains]
    return reduce(DataFrame.union, frames) if frames else None


def _spread(spark: SparkSession, step: BucketStep, buckets: int) -> DataFrame:
    read = ChainStep(step)
    places = spark.range(0, len(read.buckets), 1, len(read.buckets))
    rows = places.mapInArrow(read, from_arrow_schema(read.schema))
    bucket = f"IF({CONTROL} IS NULL, {bucket_of(step.shape, buckets)}, {CONTROL_BUCKET}L)"
    found = f"{hash_of_keys(step.shape)} AS {HASH}"
    placed = rows.selectExpr("*", f"{bucket} AS {BUCKET}", found)
    # A step without chains: it writes one full file for every bucket.
    written = advanced_buckets(placed, step.spreading())
    return written.select(CONTROL)


def sort_out_spread(texts: list[str], attempt: CheckpointId) -> SpreadState:
    """Sort out the reports of a rescale, and check that every open row is in a new file.

    Raises:
        LaminarError: An error that a task reported instead of its result.
    """
    moved: dict[tuple[OperatorId, int], int] = {}
    others: list[str] = []
    for text in texts:
        report = json.loads(text)
        if "moved" in report:
            moved[OperatorId(report["operator"]), report["bucket"]] = report["moved"]
        else:
            others.append(text)
    files = sort_out(others, attempt).states
    wrong = []
    for operator in sorted({operator for operator, _ in moved}):
        read = sum(rows for (each, _), rows in moved.items() if each == operator)
        written = sum(entry.rows or 0 for entry in files.get(operator, ()))
        if read != written:
            problem = f"{read} rows of its state were read, {written} written"
            wrong.append(Violation(RECORD_ACCOUNTING, operator, problem))
    return SpreadState(files, tuple(wrong))

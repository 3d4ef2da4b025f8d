"""How fast a state is spread over another number of buckets, beside copying the same bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from msgspec import structs

from bench.figures import Benchmark, Figure
from bench.measure import Sample, call, one_by_one
from bench.surroundings import Surroundings
from laminar_dagster.core import layout
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.ids import EpochNumber, OperatorId, PartitionId
from laminar_dagster.core.manifest import Origin, PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.clock import mint_checkpoint_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_dagster.spark.bucket_step import WindowStep

_NAME: Final = "rescale"
_OPERATOR: Final = OperatorId("clicks")
_KEY: Final = "_k0"
_ROWS: Final = 1_000_000
# A row is 40 bytes: window, a key of 16 with its offset, two partials.
_ROWS_OF_A_GIGABYTE: Final = 25_000_000
_BEFORE: Final = 8
_AFTER: Final = 12
_WINDOWS: Final = 60
_MINUTE: Final = 60_000_000
_MEGABYTE: Final = 1e6


@dataclass(frozen=True)
class StoredState:
    """The state of one operator, in buckets: what a rescale finds."""

    step: WindowStep
    files: tuple[PartitionSnapshotEntry, ...]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    def keys(self) -> list[str]:
        """Of all files, in the store."""
        return [layout.checkpoint_key(self.step.attempt, file.path) for file in self.files]


def store_state(store: ObjectStore, rows: int, buckets: int) -> StoredState:
    """A full file for each bucket; where a key belongs does not matter to those who read it."""
    # Imported here: other benchmarks need no Spark.
    from laminar_dagster.spark.aggregates import PartialColumn
    from laminar_dagster.spark.bucket_step import WindowStep
    from laminar_dagster.spark.columns import END
    from laminar_dagster.spark.state_chain import Closing, StateChain
    from laminar_dagster.spark.state_files import StateFiles
    from laminar_dagster.spark.state_shape import KeyColumn, StateShape

    columns = (
        PartialColumn("_a0", None, "count", "sum", pa.int64()),
        PartialColumn("_a1", "_x1", "sum", "sum", pa.float64()),
    )
    shape = StateShape(_OPERATOR, (KeyColumn(_KEY, "page", pa.string()),), columns)
    attempt = mint_checkpoint_id()
    files: list[PartitionSnapshotEntry] = []
    for bucket in range(buckets):
        numbers = np.arange(bucket, rows, buckets)
        ends = np.sort(numbers % _WINDOWS) * _MINUTE
        table = pa.table(
            {
                END: ends,
                _KEY: np.char.mod("page-%011d", numbers),
                "_a0": np.ones(len(numbers), np.int64),
                "_a1": np.random.default_rng(bucket).random(len(numbers)),
            }
        )
        home = StateFiles(store, attempt, shape.operator, PartitionId(bucket))
        chain = StateChain(home, shape, ())
        files += chain.advance(table, Closing(None, None))
    origin = Origin(checkpoint_id=attempt, epoch=EpochNumber(1))
    chains = {
        int(file.partition_id): (encode_part(structs.replace(file, origin=origin)),)
        for file in files
    }
    step = WindowStep(shape=shape, clocks=(), chains=chains, attempt=attempt, store=store)
    return StoredState(step, tuple(files))


def spread(spark: SparkSession, state: StoredState, buckets: int) -> int:
    """Carry it out as the engine does.

    Returns:
        How many bytes were written.

    Raises:
        AssertionError: Rows got lost.
    """
    from laminar_dagster.spark.columns import CONTROL
    from laminar_dagster.spark.rescale import sort_out_spread, spread_job

    attempt = mint_checkpoint_id()
    step = replace(state.step, attempt=attempt)
    job = spread_job(spark, {_OPERATOR: step}, buckets)
    assert job is not None
    rows = job.where(f"{CONTROL} IS NOT NULL").collect()
    found = sort_out_spread([row[0] for row in rows], attempt)
    assert not found.violations, found.violations
    return sum(file.size_bytes for file in found.files[_OPERATOR])


def copy_raw(store: ObjectStore, keys: list[str], folder: Path) -> None:
    """The same bytes: read, hashed, and written with a sync, in one thread."""
    for number, key in enumerate(keys):
        data = store.read(key)
        hashlib.sha256(data).hexdigest()
        with (folder / str(number)).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def rescale(surroundings: Surroundings) -> Iterator[Figure]:
    """One operator, from one number of buckets to one that is no multiple of it."""
    effort = surroundings.effort
    spark = surroundings.spark()
    for rows in (effort.scaled(_ROWS), *[_ROWS_OF_A_GIGABYTE] * effort.largest):
        store = surroundings.local_store()
        state = store_state(store, rows, _BEFORE)
        spread(spark, state, _AFTER)
        own, raw = one_by_one(
            replace(effort, rounds=effort.jobs),
            call(partial(spread, spark, state, _AFTER)),
            call(partial(copy_raw, store, state.keys(), surroundings.folder())),
        )
        size = state.size_bytes / _MEGABYTE
        yield Figure(
            f"{_NAME}/{rows:,}",
            f"spread {rows:,} rows, {size:,.0f} MB, from {_BEFORE} over {_AFTER} buckets",
            _rate(size, own),
            unit="MB/s",
            peer="the same bytes: read, SHA-256, written, synced; one thread",
            peer_sample=_rate(size, raw),
            note=f"a job of Spark on a warm session, {own.median:.1f} s",
        )


def _rate(size: float, seconds: Sample) -> Sample:
    return Sample(tuple(size / each for each in seconds.values))


BENCHMARK: Final = Benchmark(_NAME, "a state spread over other buckets, beside a copy", rescale)

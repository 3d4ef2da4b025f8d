"""The steps of a window aggregate, without Spark: state, closing, folding, counting."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.partials import Partial
from laminar_dagster.core import layout
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.spark.aggregate_types import column_of
from laminar_dagster.spark.bucket_step import WindowStep
from laminar_dagster.spark.columns import BUCKET, CONTROL, END, KEEP, PART, TIME
from laminar_dagster.spark.partial_step import PartialStep, WindowPartials
from laminar_dagster.spark.state_files import MAX_FILES
from laminar_dagster.spark.state_shape import KeyColumn, StateShape
from laminar_dagster.spark.watermarks import Lane, SourceClock
from laminar_dagster.spark.window_assignment import WindowAssignment
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.spark.step_reports import state_and_rows

OPERATOR = OperatorId("sums")
COLUMNS = (
    column_of(Partial("count", None), [], []),
    column_of(Partial("sum", "x"), ["_x0"], [pa.int64()]),
)
SHAPE = StateShape(OPERATOR, (KeyColumn("_k0", "k", pa.string()),), COLUMNS)
SIZE = 10

Rows = list[tuple[int, str, int]]


def records(rows: Rows, watermark: int, *, keep: bool = True) -> pa.RecordBatch:
    """Records as Spark hands them over, and the control row of their split."""
    control = json.dumps({"source": "s", "part": 0, "watermark": watermark})
    return pa.record_batch(
        {
            PART: pa.array([0] * len(rows) + [0], pa.int64()),
            CONTROL: pa.array([None] * len(rows) + [control], pa.string()),
            KEEP: pa.array([keep] * len(rows) + [False]),
            TIME: pa.array([time for time, _, _ in rows] + [None], pa.int64()),
            "_k0": pa.array([key for _, key, _ in rows] + [None], pa.string()),
            "_x0": pa.array([value for _, _, value in rows] + [None], pa.int64()),
        }
    )


class CountingStore(MemoryStore):
    """Counts how often it is read."""

    reads = 0

    def __init__(self, other: MemoryStore) -> None:
        super().__init__()
        for info in other.list(""):
            self.put(info.key, other.read(info.key))

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        self.reads += 1
        return super().read(key, limit=limit)


class Operator:
    """One bucket, taken from epoch to epoch as the engine does it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.files: tuple[PartitionSnapshotEntry, ...] = ()
        self.watermark: int | None = None
        self.epoch = 0
        self.lateness = 0

    def run(self, rows: Rows, watermark: int) -> list[dict[str, Any]]:
        self.epoch += 1
        attempt = CheckpointId.from_parts(self.epoch, self.epoch)
        step = PartialStep(WindowPartials(SHAPE, WindowAssignment(SIZE, SIZE)))
        found = pa.Table.from_batches(list(step(iter([records(rows, watermark)]))))
        bucket = found.append_column(BUCKET, pa.array([0] * found.num_rows, pa.int64()))
        take = WindowStep(
            shape=SHAPE,
            clocks=(SourceClock("s", self.watermark, (Lane(0, self.watermark, False),)),),
            chains={0: tuple(encode_part(each) for each in self.files)},
            attempt=attempt,
            store=self.store,
            lateness=self.lateness,
        )
        out = take(bucket)
        self.files, found_rows = state_and_rows(out, attempt, self.epoch)
        self.watermark = watermark
        return found_rows


def test_windows_close_later_by_what_is_allowed() -> None:
    """As if event time had come less far: with records that are late, and once."""
    operator = Operator()
    operator.lateness = 7
    assert operator.run([(3, "a", 1), (12, "a", 1)], 16) == []
    assert [row[END] for row in operator.run([(9, "a", 1)], 17)] == [10]
    assert operator.run([(11, "a", 1)], 26) == []
    (closed,) = operator.run([], 40)
    assert (closed[END], closed["count(*)"]) == (20, 2)
    assert operator.files == ()


epochs = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.integers(-9, 9)), max_size=8
        ),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@given(epochs)
@settings(max_examples=60)
def test_windows_close_once_with_everything_that_came(
    story: list[tuple[list[tuple[int, str, int]], int]],
) -> None:
    operator = Operator()
    expected: dict[tuple[int, str], list[int]] = defaultdict(list)
    emitted: dict[tuple[int, str], tuple[int, int]] = {}
    watermark = 0
    for rows, step in story:
        # Nothing that is late reaches the step.
        coming = [(watermark + time, key, value) for time, key, value in rows]
        for time, key, value in coming:
            expected[time // SIZE * SIZE + SIZE, key].append(value)
        watermark += step
        for row in operator.run(coming, watermark):
            window = (row[END], row["_k0"])
            assert window not in emitted
            assert row[END] <= watermark
            emitted[window] = (row["count(*)"], row["sum(x)"])
        for entry in operator.files:
            assert entry.event_time
            assert entry.event_time[1] > watermark, "a file of closed windows is kept"
        assert len(operator.files) <= MAX_FILES
        assert [entry.is_incremental for entry in operator.files] == [
            place > 0 for place in range(len(operator.files))
        ]
    assert emitted == {
        window: (len(values), sum(values))
        for window, values in expected.items()
        if window[0] <= watermark
    }


def test_an_epoch_without_records_writes_nothing() -> None:
    operator = Operator()
    operator.run([(5, "a", 1)], 0)
    before = {info.key for info in operator.store.list("checkpoints/")}
    operator.run([], 0)
    assert {info.key for info in operator.store.list("checkpoints/")} == before
    assert [entry.origin and entry.origin.epoch for entry in operator.files] == [1]


def test_a_large_old_file_is_not_rewritten_for_a_small_new_one() -> None:
    operator = Operator()
    operator.run([(1_000_000, f"key{n}", 1) for n in range(5000)], 0)
    for _ in range(3 * MAX_FILES):
        operator.run([(1_000_000, "key1", 1)], 0)
    assert operator.files[0].origin
    assert operator.files[0].origin.epoch == 1
    rows = operator.run([], 2_000_000)
    assert {row["_k0"]: row["count(*)"] for row in rows}["key1"] == 3 * MAX_FILES + 1


def test_a_file_is_read_only_when_a_window_in_it_closes() -> None:
    operator = Operator()
    operator.run([(1, "a", 1), (1_000_000, "a", 1)], 0)
    operator.store = store = CountingStore(operator.store)
    assert [row[END] for row in operator.run([], 10)] == [10]
    assert store.reads == 1
    (entry,) = operator.files
    assert entry.event_time == (1_000_010, 1_000_010)
    for watermark in range(20, 100, 10):
        assert operator.run([], watermark) == []
    assert store.reads == 1
    assert [row[END] for row in operator.run([], 1_000_010)] == [1_000_010]
    assert operator.files == ()


def test_damage_is_reported_by_name() -> None:
    operator = Operator()
    operator.run([(5, "a", 1)], 0)
    (entry,) = operator.files
    assert entry.origin
    key = layout.checkpoint_key(entry.origin.checkpoint_id, entry.path)
    operator.store.put(key, operator.store.read(key)[:-1])
    with pytest.raises(ChecksumMismatch):
        operator.run([], 100)


def test_what_a_filter_drops_is_counted_and_goes_nowhere() -> None:
    step = PartialStep(WindowPartials(SHAPE, WindowAssignment(SIZE, SIZE)))
    batch = records([(1, "a", 1), (2, "b", 2)], 0, keep=False)
    found = pa.Table.from_batches(list(step(iter([batch])))).to_pylist()
    assert all(row[END] is None for row in found)
    report, tally = (json.loads(row[CONTROL]) for row in found)
    assert report["watermark"] == 0
    assert (tally["processed"], tally["filtered"]) == (0, 2)


def test_a_hopping_window_takes_a_record_several_times() -> None:
    step = PartialStep(WindowPartials(SHAPE, WindowAssignment(10, 5)))
    found = pa.Table.from_batches(list(step(iter([records([(7, "a", 3)], 0)])))).to_pylist()
    assert sorted(row[END] for row in found if row[END] is not None) == [10, 15]

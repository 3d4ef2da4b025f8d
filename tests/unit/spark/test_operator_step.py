"""The state of operators in Python, without Spark: any story of epochs gives one answer."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.core.errors import ModelFailed
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.models import TIMESTAMP
from laminar_dagster.models.calls import Caller
from laminar_dagster.models.folding import fold, no_state
from laminar_dagster.spark.state_files import MAX_FILES
from laminar_dagster.spark.stored_shape import stored_shape
from tests.unit.spark.python_operator import PythonBucket, Record

KEYS = st.sampled_from(["a", "b", "c", None])
STORIES = st.lists(
    st.tuples(
        # How far ahead of the watermark, the key and the value of each record.
        st.lists(st.tuples(st.integers(0, 20), KEYS, st.integers(0, 9)), max_size=5),
        st.integers(0, 12),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)
HASHES = st.sampled_from([2, 2**62])


def at_once(bucket: PythonBucket, records: list[Record], watermark: int) -> tuple[Any, Any]:
    """All records in one epoch: what is put out by key, and what is kept."""
    rows = pa.table(
        {
            "user": pa.array([each[1] for each in records], pa.string()),
            "at": pa.array([each[0] for each in records], pa.int64()).cast(TIMESTAMP),
            "n": pa.array([each[2] for each in records], pa.int64()),
        }
    )
    operator = bucket.operator
    none = no_state(operator, pa.schema([("user", pa.string())]))
    folded = fold(operator, Caller("totals", "totals.py"), none, rows, watermark)
    told = defaultdict(list)
    for row in folded.rows.to_pylist():
        told[row["user"]].append((row["at"], row["what"], row["total"]))
    ends = folded.state.ends(operator.ttl_micros)
    state = folded.state.chosen(~folded.state.is_blank & (ends > watermark))
    kept = dict(zip(state.keys["user"].to_pylist(), state.values["total"].to_pylist(), strict=True))
    return dict(told), kept


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(STORIES, HASHES, st.sampled_from([0, 15]))
def test_any_story_of_epochs_gives_what_one_epoch_gives(
    story: list[tuple[list[Record], int, bool]], hashes: int, lateness: int
) -> None:
    """Also when state is spread anew in between, when keys meet in one hash, and chains fold.

    And when records come behind the watermark, because they waited in a join below.
    """
    bucket = PythonBucket(hashes=hashes, lateness=lateness)
    records: list[Record] = []
    told = defaultdict(list)
    watermark = 0
    for ahead, step, rewrites in story:
        new = [(watermark - lateness + each, key, value) for each, key, value in ahead]
        records += new
        watermark += step
        for row in bucket.run(new, watermark):
            told[row["user"]].append((row["at"], row["what"], row["total"]))
        if rewrites:
            bucket.rewrite()
        assert len(bucket.files) <= MAX_FILES + 1
    expected, kept = at_once(bucket, records, watermark - lateness)
    assert dict(told) == expected
    state = bucket.state()
    assert {row["user"]: row["total"] for row in state if row["total"] is not None} == kept
    waiting = sum(time >= watermark - lateness for time, _, _ in records)
    assert sum(row["waiting"] for row in state) == waiting


def test_a_key_that_is_forgotten_does_not_come_back_from_an_older_file() -> None:
    bucket = PythonBucket(ttl=10)
    bucket.run([(0, "a", 9), (0, "b", 9)], 1)
    # The timer at 27 is cleared; then the key ends by its time to live, long before 27.
    bucket.run([(2, "a", 1)], 3)
    for watermark in (13, 14, 15):
        bucket.run([], watermark)
    assert [row["user"] for row in bucket.state()] == ["b"]
    (row,) = bucket.run([(16, "a", 2)], 17)
    assert row["total"] == 2


def test_what_is_not_touched_is_not_read_or_written() -> None:
    bucket = PythonBucket(ttl=10**9)
    bucket.run([(0, f"key{number}", 1) for number in range(500)], 1)
    (before,) = bucket.files
    bucket.run([(2, "key7", 1)], 3)
    assert bucket.files[0].sha256 == before.sha256
    assert bucket.files[1].rows == 1


def test_files_of_an_older_shape_are_read_by_the_names_of_their_columns() -> None:
    bucket = PythonBucket()
    bucket.run([(0, "a", 1), (9, "a", 7)], 1)
    step = bucket.step(CheckpointId.from_parts(1, 1))
    stored = step.chain_of(0).open_rows(step.closed_before)
    shape = bucket.shape
    assert stored_shape(stored.schema) == shape
    wider = dataclasses.replace(shape, values=(("more", pa.string()), ("total", pa.float64())))
    assert wider.read(stored).column("state.more").to_pylist() == [None, None]
    both = dataclasses.replace(shape, taken=(("m", pa.int64()), ("n", pa.int64())))
    rows = stored.append_column("_r1", pa.array([None, 7])).set_column(
        stored.column_names.index("_r0"), "_r0", pa.array([None, 5])
    )
    older = rows.replace_schema_metadata(both.schema.metadata)
    assert shape.read(older).column("_r0").to_pylist() == [None, 7]
    with pytest.raises(ValueError, match="its rows that wait hold no m"):
        both.read(stored)


def test_an_error_of_an_operator_reaches_the_driver() -> None:
    bucket = PythonBucket()
    with pytest.raises(ModelFailed) as caught:
        bucket.run([(0, "a", 10**17)], 1)
    assert caught.value.operator_id == "totals"
    assert "a timer lies after the year 9999 (at the row of 1970-01-01" in caught.value.reason


def test_times_are_told_in_microseconds() -> None:
    (row,) = PythonBucket().run([(5, "a", 1)], 6)
    assert row["at"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=5)

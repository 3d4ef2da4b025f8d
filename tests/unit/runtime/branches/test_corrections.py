"""A correction turns what a sink holds into what it should hold, or is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.branch import BranchSink, BranchWindow
from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.core.ids import OperatorId, SinkId
from laminar_dagster.runtime.branches.corrections import (
    Beginning,
    Correction,
    correct_append,
    correct_upsert,
)
from laminar_dagster.sinks.changes import split

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = 60_000_000
EMPTY = Beginning(is_empty=True)
SINK = BranchSink(sink_id=SinkId("t"), view=OperatorId("v"), mode="upsert", key=("k",))
WINDOWED = BranchSink(
    sink_id=SinkId("t"),
    view=OperatorId("v"),
    mode="upsert",
    key=("k", "at"),
    window=BranchWindow(operator_id=OperatorId("v"), column="at", size_micros=MINUTE),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.sampled_from([1, 1, -1])), max_size=10
)


def table(changes: list[tuple[int, int, int]]) -> pa.Table | None:
    if not changes:
        return None
    keys, values, weights = zip(*changes, strict=True)
    return pa.table({"k": keys, "v": values, "_weight": pa.array(weights, pa.int8())})


def apply(held: dict[int, int], rows: pa.Table | None) -> dict[int, int]:
    if rows is None:
        return held
    changes = split(rows, ("k",))
    gone = changes.deleted.column("k").to_pylist() if changes.deleted is not None else []
    left = {key: value for key, value in held.items() if key not in gone}
    return {**left, **{row["k"]: row["v"] for row in changes.rows.to_pylist()}}


@given(CHANGES, CHANGES, st.dictionaries(st.integers(0, 4), st.integers(0, 2)))
def test_what_is_corrected_is_right(
    old: list[tuple[int, int, int]], new: list[tuple[int, int, int]], before: dict[int, int]
) -> None:
    main, branch = table(old), table(new)
    from_nothing = correct_upsert(main, branch, SINK, EMPTY)
    assert not from_nothing.problem
    assert apply(apply({}, main), from_nothing.rows) == apply({}, branch)
    later = correct_upsert(main, branch, SINK, Beginning(is_empty=False))
    if not later.problem:
        assert apply(apply(before, main), later.rows) == apply(before, branch)
    else:
        assert {row[0] for row in old} - {row[0] for row in new}


def test_rows_that_are_alike_are_left_alone() -> None:
    rows = pa.table({"k": [1, 2], "v": [1, 2]})
    assert correct_upsert(rows, rows, SINK, EMPTY) == Correction()
    found = correct_upsert(rows, pa.table({"k": [2, 1], "v": [2, 3]}), SINK, EMPTY)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"k": 1, "v": 3}]


def test_deletions_come_with_weights_and_in_the_order_of_the_keys() -> None:
    old = pa.table({"k": [3, 1], "v": [1, 1]})
    found = correct_upsert(old, pa.table({"k": [2], "v": [5]}), SINK, EMPTY)
    assert found.rows is not None
    assert found.rows.to_pylist() == [
        {"k": 1, "v": None, "_weight": -1},
        {"k": 2, "v": 5, "_weight": 1},
        {"k": 3, "v": None, "_weight": -1},
    ]
    # Also where the branch has put out nothing at all.
    found = correct_upsert(old, None, SINK, EMPTY)
    assert found.rows is not None
    assert found.rows.column("_weight").to_pylist() == [-1, -1]


def test_rows_without_a_weight_are_put() -> None:
    """As the epochs beside one that was a correction itself."""
    old = pa.table({"k": [1, 2], "v": [1, 1], "_weight": pa.array([None, -1], pa.int8())})
    assert correct_upsert(old, pa.table({"k": [1], "v": [1]}), SINK, EMPTY).rows is None


def test_a_column_that_is_new_changes_every_row() -> None:
    old = pa.table({"k": [1], "v": [1]})
    found = correct_upsert(old, pa.table({"k": [1], "v": [1], "w": [2]}), SINK, EMPTY)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"k": 1, "v": 1, "w": 2}]


def test_a_key_that_changed_is_refused() -> None:
    old, new = pa.table({"k": ["a"], "v": [1]}), pa.table({"k": [1], "v": [1]})
    assert "key have changed" in correct_upsert(old, new, SINK, EMPTY).problem
    other = pa.table({"v": [1]})
    assert "without its key column `k`" in correct_upsert(other, new, SINK, EMPTY).problem


NO_KEY = pa.table({"k": pa.array([None, 1], pa.int64()), "v": [1, 1]})
ONE_KEY = pa.table({"k": [1], "v": [1]})


@pytest.mark.parametrize(("old", "new"), [(NO_KEY, ONE_KEY), (ONE_KEY, NO_KEY), (NO_KEY, None)])
@pytest.mark.parametrize("before", [EMPTY, Beginning(is_empty=False)])
def test_a_key_that_is_null_is_refused(
    old: pa.Table, new: pa.Table | None, before: Beginning
) -> None:
    """No sink could take the correction, and by then the epoch would be committed."""
    found = correct_upsert(old, new, SINK, before)
    assert found == Correction(problem="its key column `k` is null in 1 row")


def test_a_window_that_is_null_is_refused() -> None:
    at = pa.array([None], pa.timestamp("us", "UTC"))
    old = pa.table({"k": ["x"], "at": at, "v": [1]})
    assert "`at` is null" in correct_upsert(old, None, WINDOWED, since(0)).problem


# --- from the middle ----------------------------------------------------------------------------


def windows(*minutes: int) -> pa.Table:
    at = [NOON + timedelta(minutes=each) for each in minutes]
    return pa.table({"k": ["x"] * len(at), "at": at, "v": [1] * len(at)})


def weights(found: Correction) -> list[int]:
    assert found.rows is not None
    return list(found.rows.column("_weight").to_pylist())


def since(minutes: float) -> Beginning:
    closed = NOON + timedelta(minutes=minutes)
    return Beginning(is_empty=False, closed_until=to_utc_microseconds(closed))


def test_a_window_that_was_open_then_had_no_older_value() -> None:
    found = correct_upsert(windows(1, 2), windows(2), WINDOWED, since(1.5))
    assert (found.problem, weights(found)) == ("", [-1])
    unkeyed = correct_upsert(windows(1, 2), windows(2), SINK_WITHOUT_WINDOW, since(1.5))
    assert "1 row by key" in unkeyed.problem


SINK_WITHOUT_WINDOW = BranchSink(
    sink_id=SinkId("t"), view=OperatorId("v"), mode="upsert", key=("k", "at")
)


@pytest.mark.parametrize(
    ("old", "closed", "is_refused"),
    [
        # The window at 12:01 ends at 12:02.
        ((1, 2), 1.9, False),
        ((1, 2), 2.0, True),
        # Written twice, so it is not what it seems.
        ((1, 1, 2), 1.5, True),
    ],
)
def test_a_window_that_may_have_been_written_before_is_refused(
    old: tuple[int, ...], closed: float, is_refused: bool
) -> None:
    found = correct_upsert(windows(*old), windows(2), WINDOWED, since(closed))
    assert bool(found.problem) == is_refused


def test_an_end_of_a_window_is_its_end() -> None:
    window = BranchWindow(operator_id=OperatorId("v"), column="at", size_micros=MINUTE, is_end=True)
    sink = BranchSink(
        sink_id=SinkId("t"), view=OperatorId("v"), mode="upsert", key=("k", "at"), window=window
    )
    assert weights(correct_upsert(windows(1), None, sink, since(0.9))) == [-1]
    assert correct_upsert(windows(1), None, sink, since(1)).problem


def test_a_window_that_is_no_time_is_refused() -> None:
    old = pa.table({"k": ["x"], "at": ["12:01"], "v": [1]})
    assert correct_upsert(old, None, WINDOWED, since(0)).problem


# --- append -------------------------------------------------------------------------------------


def test_appending_adds_and_never_takes_back() -> None:
    old, new = pa.table({"a": [1, 2, 2]}), pa.table({"a": [2, 1, 3, 2, 2]})
    found = correct_append(old, new)
    assert found.rows is not None
    assert sorted(found.rows.column("a").to_pylist()) == [2, 3]
    assert correct_append(new, old).problem == "it appends, and holds 2 rows to take back"
    assert correct_append(old, old) == Correction()
    assert correct_append(None, None) == Correction()
    assert correct_append(None, new) == Correction(new)
    assert "1 row to" in correct_append(pa.table({"a": [1]}), None).problem

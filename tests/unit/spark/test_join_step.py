"""Joins without Spark: any story of epochs gives what a join of whole tables gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.config.relations import Window
from laminar_dagster.core.ids import OperatorId
from laminar_dagster.spark.join_shape import JoinShape, KeptColumn
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.state_files import MAX_FILES
from laminar_dagster.spark.state_shape import KeyColumn
from tests.unit.spark.join_operator import Operator, Record, expected, join_of, told

KINDS = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])
# A side, how long after what is late, a key, a value, and which row to take back instead.
DRAWN = st.tuples(
    st.integers(0, 1),
    st.integers(0, 12),
    st.sampled_from(["a", "a", "b", None]),
    st.integers(0, 3),
    st.none() | st.integers(0, 50),
)
STORIES = st.lists(
    st.tuples(st.lists(DRAWN, max_size=7), st.integers(0, 8)), min_size=1, max_size=12
)
LAGS = st.tuples(st.sampled_from([0, 4]), st.sampled_from([0, 4]))
COMPARISONS = st.sampled_from([(), ("<",), (">=",)])
# Few hashes, so that keys meet in one; and many.
HASHES = st.sampled_from([2, 2**62])
END = 10_000


def in_turn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of an epoch, of which none both comes and goes, and what goes stands first."""
    weights = [row[WEIGHT] for row in rows]
    assert weights == sorted(weights)
    came, gone = (
        {repr({**row, WEIGHT: 0}) for row in rows if row[WEIGHT] == sign} for sign in (1, -1)
    )
    assert not came & gone
    return rows


def play(operator: Operator, story: Any, *, takes_back: bool) -> Counter[tuple[Any, ...]]:
    """Run a story to its end, and compare with a join of everything that came."""
    join, mark = operator.join, 0
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    for number, (drawn, step) in enumerate(story):
        came: list[Record] = []
        for side, late, key, value, back in drawn:
            # A row is on time until the watermark has passed it by the lag of its side.
            least = mark - join.sides[side].lag_micros
            alive: Counter[Record] = Counter()
            for each in (*records, *came):
                alive[Record(each.side, each.time, each.key, each.value)] += each.weight
            found = [
                each
                for each, count in alive.items()
                if count > 0 and each.time >= mark - join.sides[each.side].lag_micros
            ]
            if takes_back and back is not None and found:
                gone = found[back % len(found)]
                came.append(Record(gone.side, gone.time, gone.key, gone.value, -1))
            else:
                came.append(Record(side, max(0, least + late), key, value))
        records += came
        mark += step
        rows += in_turn(operator.run(came, mark))
        if number == len(story) // 2:
            operator.spread()
    rows += operator.run([], END)
    assert told(rows) == expected(join, records)
    if not takes_back and join.emits != "changes":
        assert all(row[WEIGHT] == 1 for row in rows)
    return told(rows)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    STORIES,
    KINDS,
    st.tuples(st.integers(-9, 9), st.integers(0, 9)),
    LAGS,
    COMPARISONS,
    HASHES,
    st.booleans(),
    st.booleans(),
)
def test_an_interval_join_is_that_of_whole_tables(
    story: Any,
    kind: str,
    interval: tuple[int, int],
    lags: tuple[int, int],
    comparisons: tuple[str, ...],
    hashes: int,
    is_picky: bool,
    takes_back: bool,
) -> None:
    bounds = interval[0], interval[0] + interval[1]
    join = join_of(kind, "once", bounds, lags, None, comparisons, is_picky=is_picky)
    play(Operator(join, hashes=hashes), story, takes_back=takes_back)


@settings(max_examples=30, deadline=None)
@given(
    STORIES,
    KINDS,
    st.none() | st.integers(1, 12),
    LAGS,
    COMPARISONS,
    HASHES,
    st.booleans(),
)
def test_a_join_with_a_time_to_live_takes_back_what_is_taken_back(
    story: Any,
    kind: str,
    ttl: int | None,
    lags: tuple[int, int],
    comparisons: tuple[str, ...],
    hashes: int,
    is_picky: bool,
) -> None:
    bounds = None if ttl is None else (1 - ttl, ttl - 1)
    join = join_of(kind, "changes", bounds, lags, None, comparisons, is_picky=is_picky)
    play(Operator(join, hashes=hashes), story, takes_back=True)


@settings(max_examples=20, deadline=None)
@given(STORIES, KINDS, st.sampled_from([(6, 6), (6, 3)]), COMPARISONS, HASHES)
def test_a_window_join_is_that_of_each_window(
    story: Any, kind: str, lengths: tuple[int, int], comparisons: tuple[str, ...], hashes: int
) -> None:
    window = Window("t", *lengths)
    join = join_of(kind, "close", None, window=window, comparisons=comparisons)
    play(Operator(join, hashes=hashes), story, takes_back=False)


def test_a_row_without_a_partner_is_told_when_none_can_come() -> None:
    operator = Operator(join_of("left", "once", (0, 10)))
    assert operator.run([Record(0, 100, "a", 1)], 110) == []
    (row,) = operator.run([], 111)
    assert (row["left.v"], row["right.v"], row[WEIGHT]) == (1, None, 1)
    assert operator.files == ()


def test_a_key_with_many_rows_is_not_rewritten_when_one_more_comes() -> None:
    operator = Operator(join_of("inner", "changes", None))
    operator.run([Record(0, 0, "a", number) for number in range(1000)], 0)
    operator.run([Record(1, 0, "a", 1)], 0)
    assert [each.rows for each in operator.files] == [1000, 1]


def test_what_was_taken_back_goes_when_files_are_folded() -> None:
    operator = Operator(join_of("inner", "changes", None))
    for number in range(2 * MAX_FILES):
        operator.run([Record(0, 0, "a", number % 2, 1 if number % 4 < 2 else -1)], 0)
    assert sum(each.rows or 0 for each in operator.files) < 2 * MAX_FILES


def test_rows_end_by_the_watermark_and_their_files_go() -> None:
    operator = Operator(join_of("inner", "once", (0, 10)))
    for mark in range(0, 500, 5):
        operator.run([Record(0, mark, "a", 1), Record(1, mark, "b", 1)], mark)
        assert sum(each.rows or 0 for each in operator.files) < 2 * (MAX_FILES + 4)


@pytest.mark.parametrize("weight", [0, 2])
def test_a_weight_is_one_or_minus_one(weight: int) -> None:
    operator = Operator(join_of("inner", "changes", None))
    with pytest.raises(Exception, match="_weight` has to be 1 or -1"):
        operator.run([Record(0, 0, "a", 1, weight)], 0)


def test_a_pair_that_never_was_is_not_told() -> None:
    """A row is taken back in the epoch in which its partner comes; another takes its place."""
    operator = Operator(join_of("inner", "changes", None))
    operator.run([Record(0, 1, "a", 9)], 0)
    swapped = [Record(0, 1, "a", 9, -1), Record(0, 2, "a", 5), Record(1, 3, "a", 7)]
    found = operator.run(swapped, 0)
    assert [(row["left.v"], row["right.v"], row[WEIGHT]) for row in found] == [(5, 7, 1)]
    assert operator.run([Record(0, 2, "a", 5, -1), Record(1, 4, "a", 8)], 0) == [
        {**found[0], WEIGHT: -1}
    ]


def test_rows_with_lists_are_gone_when_they_are_taken_back() -> None:
    columns = (KeptColumn("left.tags", pa.list_(pa.string())),)
    shape = JoinShape(OperatorId("pairs"), (KeyColumn("_k0", "k", pa.string()),), (), columns)

    def rows(*tags: list[str] | None, weight: int = 1) -> pa.Table:
        count = len(tags)
        values = {
            "_hash": [7] * count,
            "_end": [None] * count,
            "_side": [0] * count,
            "_time": [1] * count,
            WEIGHT: [weight] * count,
            "_k0": ["a"] * count,
            "left.tags": list(tags),
        }
        arrays = [pa.array(values[each.name], each.type) for each in shape.schema]
        return pa.table(arrays, schema=shape.schema)

    kept = shape.merge([rows(["x"], None, ["y", "z"], ["x"]), rows(["x"], ["y", "z"], weight=-1)])
    found = zip(kept.column("left.tags").to_pylist(), kept.column(WEIGHT).to_pylist(), strict=True)
    assert sorted(found, key=repr) == [(None, 1), (["x"], 1)]

"""Lateness and watermarks: which records count, and when windows close."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.spark.lateness import LatenessJudge
from laminar_dagster.spark.watermarks import Lane, SourceClock, earliest, latest

times = st.lists(st.integers(0, 100), min_size=1, max_size=40)


def batch(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(values, pa.timestamp("us", "UTC"))})


@given(times, st.integers(0, 20), st.data())
def test_lateness_does_not_depend_on_the_cut(
    values: list[int], delay: int, data: st.DataObject
) -> None:
    whole = LatenessJudge("at", delay, None, None)
    verdict = whole.lateness(batch(values)).tolist()
    cut = data.draw(st.integers(0, len(values)))
    first = LatenessJudge("at", delay, None, None)
    early = first.lateness(batch(values[:cut])).tolist()
    # A second epoch starts from the watermark that the first one left in the manifest.
    second = LatenessJudge("at", delay, first.watermark, None)
    assert early + second.lateness(batch(values[cut:])).tolist() == verdict
    assert second.watermark == whole.watermark


@given(times, st.integers(0, 20))
def test_a_record_is_late_when_a_much_newer_one_stands_before_it(
    values: list[int], delay: int
) -> None:
    verdict = LatenessJudge("at", delay, None, None).lateness(batch(values))
    for place, value in enumerate(values):
        newest = max(values[:place], default=None)
        behind = 0 if newest is None else newest - delay - value
        assert verdict[place] == max(0, behind)


def test_a_source_that_went_on_judges_a_partition_that_was_idle() -> None:
    verdict = LatenessJudge("at", 5, 10, 50).lateness(batch([20, 49, 50, 60]))
    assert verdict.tolist() == [30, 1, 0, 0]


def test_a_time_before_all_others_is_not_late_to_a_partition_without_events() -> None:
    judge = LatenessJudge("at", 5, None, None)
    assert judge.lateness(batch([-(2**62), 2**62, -(2**60)])).tolist() == [0, 0, 2**62 + 2**60 - 5]


def test_no_records_change_nothing() -> None:
    judge = LatenessJudge("at", 5, 10, None)
    assert judge.lateness(batch([])).dtype == np.int64
    assert judge.watermark == 10


def clock(*lanes: tuple[int | None, bool], watermark: int | None = None) -> SourceClock:
    return SourceClock(
        "s",
        watermark,
        tuple(Lane(part, mark, idle) for part, (mark, idle) in enumerate(lanes)),
    )


def test_the_slowest_partition_holds_the_source() -> None:
    assert clock((10, False), (20, False)).advance({0: 30}) == 20


def test_an_idle_partition_holds_nobody() -> None:
    assert clock((10, True), (20, False)).advance({1: 40}) == 40


def test_a_partition_without_events_holds_everybody() -> None:
    assert clock((None, False), (20, False)).advance({1: 40}) is None


def test_when_all_are_idle_time_stands_still() -> None:
    assert clock((10, True), (20, True), watermark=15).advance({}) == 15


def test_a_watermark_never_runs_back() -> None:
    assert clock((10, False), (40, False), watermark=35).advance({0: 12}) == 35
    assert clock((10, False)).lane_watermarks({0: 5}) == (10,)


def test_none_is_before_everything() -> None:
    assert earliest([3, None]) is None
    assert earliest([]) is None
    assert earliest([3, 2]) == 2
    assert latest([None, 2]) == 2
    assert latest([None]) is None

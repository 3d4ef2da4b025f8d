from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sources.kafka.backpressure import BackpressureController


def test_between_the_marks_nothing_changes() -> None:
    pressure = BackpressureController(100)
    fills = [79, 80, 95, 51, 50, 79, 51, 80, 80, 0]
    assert [pressure.decide(fill) for fill in fills] == [
        "go on",
        "pause",
        "go on",
        "go on",
        "resume",
        "go on",
        "go on",
        "pause",
        "go on",
        "resume",
    ]
    assert pressure.pauses == 2


@given(st.lists(st.integers(0, 300)), st.integers(1, 200))
def test_it_takes_turns_and_never_stays_paused_when_empty(fills: list[int], capacity: int) -> None:
    pressure = BackpressureController(capacity)
    taken = [pressure.decide(fill) for fill in [*fills, 0]]
    turns = [each for each in taken if each != "go on"]
    assert turns == ["pause", "resume"] * pressure.pauses
    assert not pressure.is_paused


@pytest.mark.parametrize(
    ("capacity", "high", "low"), [(0, 0.8, 0.5), (9, 0.5, 0.5), (9, 0.4, 0.6), (9, 1.1, 0.5)]
)
def test_marks_that_make_no_sense(capacity: int, high: float, low: float) -> None:
    with pytest.raises(ValueError, match="low < high"):
        BackpressureController(capacity, high, low)

"""Durations as people write them, and as they are told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.units import parse_duration, spell_duration


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (86_400_000_000, "1d"),
        (90_000_000_000, "25h"),
        (61_000_000, "61s"),
        (1_500_000, "1500ms"),
        (1_500, "0.0015s"),
    ],
)
def test_a_duration_is_told_in_the_largest_unit_that_fits(micros: int, text: str) -> None:
    assert spell_duration(micros) == text


@given(st.integers(0, 10**8))
def test_what_is_told_can_be_written(millis: int) -> None:
    assert parse_duration(spell_duration(millis * 1000)) == timedelta(milliseconds=millis)

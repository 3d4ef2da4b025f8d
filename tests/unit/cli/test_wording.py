from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from laminar_dagster.cli import wording

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2**63 - 1, "8.0 EiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0901, "0.09s"),
        (9.87, "9.9s"),
        (12.9, "12s"),
        (60, "1m"),
        (3_725, "1h 2m"),
        (3_605, "1h"),
        (86_400 * 400, "400d"),
        (-90, "-1m 30s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(timedelta(seconds=seconds)) == text


def test_an_age_may_lie_in_the_future() -> None:
    assert wording.age(NOON - timedelta(seconds=2.7), NOON) == "2s"
    assert wording.age(NOON + timedelta(seconds=90), NOON) == "in 1m 30s"


def test_timestamps_are_in_utc() -> None:
    there = timezone(timedelta(hours=2))
    assert wording.timestamp(datetime(2026, 1, 1, 14, tzinfo=there)) == "2026-01-01 12:00:00"


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (None, ""),
        (0, "1970-01-01 00:00:00"),
        (1_500_000, "1970-01-01 00:00:01.5"),
        (-1, "1969-12-31 23:59:59.999999"),
        (2**63 - 1, f"{2**63 - 1} µs"),
    ],
)
def test_event_times(micros: int | None, text: str) -> None:
    assert wording.microseconds(micros) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode", "plain ünïcode"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("two\nlines\t.", r"two\nlines\t."),
        ("\u202eright to left", r"\u202eright to left"),
        ("\udcff", r"\udcff"),
    ],
)
def test_foreign_texts_are_tamed(text: str, shown: str) -> None:
    assert wording.clean(text) == shown


def test_counts_have_their_plural() -> None:
    assert [wording.count(n, "file") for n in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]

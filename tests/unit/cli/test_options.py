from __future__ import annotations

from datetime import timedelta

import click
import pytest

from laminar_dagster.cli.options import DurationType, LimitType


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("30m", timedelta(minutes=30)),
        ("1h", timedelta(hours=1)),
        ("1h30m", timedelta(minutes=90)),
        ("2D", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("1.5h", timedelta(minutes=90)),
        (" 0s ", timedelta(0)),
        ("3650d", timedelta(days=3650)),
    ],
)
def test_reads_durations(text: str, span: timedelta) -> None:
    assert DurationType().convert(text, None, None) == span


@pytest.mark.parametrize("text", ["", "1", "1 h", "h1", "-1h", "1e3s", "3651d", "\u0661h", "1h;2m"])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DurationType().convert(text, None, None)


@pytest.mark.parametrize(("text", "limit"), [("1", 1), ("0", None), ("all", None), ("ALL", None)])
def test_reads_limits(text: str, limit: int | None) -> None:
    assert LimitType().convert(text, None, None) == limit


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_000", "1.0", "every", "\u0661"])
def test_refuses_what_is_no_limit(text: str) -> None:
    with pytest.raises(click.BadParameter):
        LimitType().convert(text, None, None)

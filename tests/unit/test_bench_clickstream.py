"""The clickstream that both engines are measured with must be fair to both."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from bench.click_schema import DELAY_SECONDS
from bench.clickstream import START, Clicks, click_lines


def moments(data: bytes) -> list[datetime]:
    return [datetime.fromisoformat(json.loads(line)["at"]) for line in data.splitlines()]


def test_every_line_is_a_click_of_about_a_hundred_bytes() -> None:
    data = Clicks(records=400, seconds=60, keys=10).lines(segment=0, part=0)
    lines = data.splitlines()
    assert len(lines) == 100
    assert {frozenset(json.loads(line)) for line in lines} == {
        frozenset({"at", "page", "amount", "n", "user"})
    }
    assert 90 <= len(data) / len(lines) <= 105
    assert data.endswith(b"\n")


def test_the_same_segment_is_the_same_and_no_other_is() -> None:
    clicks = Clicks(records=400, seconds=60, keys=10)
    assert clicks.lines(1, 2) == clicks.lines(1, 2)
    assert len({clicks.lines(segment, part) for segment in (0, 1) for part in (0, 1)}) == 4


def test_no_click_is_late_in_its_file_nor_behind_the_segments_before() -> None:
    clicks = Clicks(records=4_000, seconds=30, keys=10)
    delay = timedelta(seconds=DELAY_SECONDS)
    newest_of_all = START
    out_of_order = 0
    for segment in range(3):
        reached = newest_of_all
        for part in range(clicks.files):
            newest = START
            for moment in moments(clicks.lines(segment, part)):
                assert moment >= newest - delay
                assert moment >= newest_of_all - delay
                out_of_order += moment < newest
                newest = max(newest, moment)
            reached = max(reached, newest)
        newest_of_all = reached
    assert out_of_order > 100


def test_amounts_add_up_exactly_in_any_order() -> None:
    data = Clicks(records=4_000, seconds=30, keys=10).lines(0, 0)
    amounts = [json.loads(line)["amount"] for line in data.splitlines()]
    assert all(amount * 4 == int(amount * 4) for amount in amounts)
    assert len({amount % 1 for amount in amounts}) == 4


def test_files_of_later_segments_were_written_later(tmp_path: Path) -> None:
    clicks = Clicks(records=40, seconds=30, keys=10)
    first, second = (clicks.write(tmp_path, segment) for segment in (0, 1))
    assert [path.name for path in first] == [f"0000-{part}.ndjson" for part in range(4)]
    assert max(path.stat().st_mtime for path in first) < min(p.stat().st_mtime for p in second)
    assert max(path.stat().st_mtime for path in second) < datetime.now(UTC).timestamp()


def test_lines_hold_the_moments_and_pages_that_were_asked_for() -> None:
    data = click_lines(np.array([0, 61_250]), np.array([7, 12_345_678]), np.random.default_rng(1))
    first, second = (json.loads(line) for line in data.splitlines())
    assert (first["at"], first["page"]) == ("2026-01-01T00:00:00.000Z", "/page/00000007")
    assert (second["at"], second["page"]) == ("2026-01-01T00:01:01.250Z", "/page/12345678")

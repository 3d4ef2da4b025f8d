"""Targets of times are upper ones, targets of rates are lower ones; and the table says which."""

from __future__ import annotations

import pytest

from bench import report
from bench.__main__ import main
from bench.figures import Figure, Unit
from bench.measure import FULL, QUICK, Sample, one_by_one_of


@pytest.mark.parametrize(
    ("unit", "is_met", "best"),
    [("s", False, 1.0), ("times", False, 1.0), ("MB/s", True, 4.0), ("records/s", True, 4.0)],
)
def test_of_a_rate_more_is_better(unit: Unit, is_met: bool, best: float) -> None:
    figure = Figure("f", "what", Sample((1.0, 3.0, 4.0)), unit=unit, limit=2.0)
    assert figure.is_met is is_met
    assert figure.best == best


def test_nothing_measured_has_no_best_and_meets_nothing() -> None:
    figure = Figure("f", "what", None, unit="MB/s", limit=2.0)
    assert figure.best is None
    assert figure.is_met is None


def test_the_table_shows_targets_and_rates(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(
        [
            Figure("fast", "w", Sample((1_234_567.0,)), unit="records/s", limit=1_000_000.0),
            Figure("disk", "w", Sample((80.0,)), unit="MB/s", limit=100.0),
            Figure("ratio", "w", Sample((1.25,)), unit="times", limit=1.3),
            Figure("less", "w", Sample((-0.0025,)), limit=0.2),
            Figure("memory", "w", Sample((300.0,)), unit="bytes"),
        ]
    )
    lines = {line.split("|")[1].strip(): line for line in capsys.readouterr().out.splitlines()[3:8]}
    assert "1,234,567/s" in lines["fast"]
    assert "> 1,000,000/s | yes" in lines["fast"]
    assert "> 100 MB/s | no" in lines["disk"]
    assert "< 1.30x | yes" in lines["ratio"]
    assert "-2.5 ms" in lines["less"]
    assert "300 B" in lines["memory"]


def test_a_round_that_warms_up_does_not_count() -> None:
    numbers = iter(range(10))
    assert one_by_one_of(3, 2, lambda: next(numbers)) == [2, 3, 4]


def test_a_hurried_run_takes_a_part_of_the_records() -> None:
    assert FULL.scaled(2_000_000) == 2_000_000
    assert 0 < QUICK.scaled(2_000_000) < 200_000
    assert QUICK.scaled(1) == 1


def test_benchmarks_of_the_engine_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name in (
        "throughput",
        "epoch-overhead",
        "state-growth",
        "checkpoint-overhead",
        "state-io",
    ):
        assert f"  {name} " in listed


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["thruput"])
    assert "'thruput'" in capsys.readouterr().err

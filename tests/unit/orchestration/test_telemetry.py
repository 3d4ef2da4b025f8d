"""Epochs that are runs of Dagster push their metrics to a real collector."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from laminar_dagster.orchestration.resident import ResidentRunner
from tests.services.otlp_collector import Collector, collecting
from tests.unit.orchestration.conditions import FILES, Stage
from tests.unit.runtime.observed import ReadingEngine


@pytest.fixture
def collector(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setattr("tests.unit.runtime.conditions.MemoryEngine", ReadingEngine)
    with collecting() as collector:
        lines = f"metrics: {{otlp: '{collector.url}', prometheus: 127.0.0.1:1}}\n"
        stage.files["pipeline.yml"] = FILES["pipeline.yml"] + lines
        yield collector


def test_an_epoch_is_pushed_when_it_is_finished(stage: Stage, collector: Collector) -> None:
    stage.arrive(*range(6))
    assert stage.run("epoch", [1]).success
    assert collector.pushes == [], "nothing is finished yet"
    assert stage.run("commit", [1]).success
    assert stage.run("epoch_and_commit", [2]).success
    assert len(collector.pushes) == 2
    assert [collector.value("laminar.source.records", push) for push in (0, 1)] == [3, 3]
    assert [collector.value("laminar.epoch.number", push) for push in (0, 1)] == [1, 2]
    assert collector.value("laminar.source.commits") == 1
    lag = collector.metrics(0)["laminar.source.lag"].gauge.data_points
    assert {point.as_int for point in lag} == {3, 0}


def test_an_epoch_that_is_run_again_is_not_counted_again(
    stage: Stage, collector: Collector
) -> None:
    stage.arrive(*range(6))
    for epoch in (1, 2, 1):
        assert stage.run("epoch_and_commit", [epoch]).success
    assert stage.run("commit", [1]).success
    assert len(collector.pushes) == 2


def test_an_epoch_that_another_run_finishes_is_counted_there(
    stage: Stage, collector: Collector
) -> None:
    stage.arrive(*range(6))
    assert stage.run("epoch", [1]).success
    # The next one commits what it finds prepared.
    assert stage.run("epoch", [2]).success
    assert len(collector.pushes) == 1
    assert collector.value("laminar.epoch.number") == 1
    assert collector.value("laminar.source.records") == 3


def test_a_loop_that_stays_pushes_for_itself(stage: Stage, collector: Collector) -> None:
    stage.arrive(1, 2)
    with ResidentRunner(stage.stream, stage.instance, lambda *_: None) as runner:
        report = runner.run()
    assert report.is_finisher
    assert collector.paths == []


def test_a_collector_that_refuses_fails_no_epoch(stage: Stage, collector: Collector) -> None:
    collector.answer = 400
    stage.arrive(1, 2)
    assert stage.run("epoch_and_commit", [1]).success
    assert collector.paths == ["/v1/metrics"]
    assert stage.newest == 1


def test_missing_packages_stop_an_epoch_before_it_begins(
    stage: Stage, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    stage.arrive(1, 2)
    result = stage.run("epoch_and_commit", [1])
    assert not result.success
    assert stage.error_kind(result) == "invalid_config"
    assert not (stage.project / "state" / "plans").exists()

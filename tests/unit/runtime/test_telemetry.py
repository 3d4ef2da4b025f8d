"""Metrics, as a real scrape and a real collector see them."""

from __future__ import annotations

import logging
import math
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from laminar_dagster.config.metrics import MetricsConfig
from laminar_dagster.core.errors import InvalidConfig, SinkUnavailable, SourceUnavailable
from laminar_dagster.core.ids import EpochNumber, PipelineName, SourceId
from laminar_dagster.core.offsets import FilePosition, KafkaPosition, SourceRange
from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.runtime.backlog import Backlog, SourceBacklog
from laminar_dagster.runtime.epoch import EpochReport, EpochRunner
from laminar_dagster.runtime.loop import EpochLoop, Retrying
from laminar_dagster.runtime.metrics import METRICS, Attributes, Metric, Points
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.telemetry import MOST_PARTITIONS, Telemetry, open_telemetry
from laminar_dagster.testing.memory_store import MemoryStore
from tests.services.otlp_collector import Collector, collecting
from tests.unit.runtime.conditions import World
from tests.unit.runtime.memory_reference import MemoryReference
from tests.unit.runtime.observed import NEWEST, ObservedSource, ReadingEngine

NAME = PipelineName("memory")
DOCS = Path(__file__).parents[3] / "docs" / "monitoring.md"


@dataclass
class Stand:
    """A pipeline that is measured."""

    world: World
    pipeline: Pipeline
    source: ObservedSource
    fruit: MemoryReference
    telemetry: Telemetry

    def loop(self) -> EpochLoop:
        return EpochLoop(
            self.pipeline,
            EpochRunner(self.pipeline),
            lambda event: self.telemetry.follow(event, self.pipeline),
            on_look=self.telemetry.waiting,
        )

    def scrape(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Every series by its name and its labels, all but the pipeline's."""
        assert self.telemetry.address
        with urllib.request.urlopen(self.telemetry.address, timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert sample.name == "target_info" or labels.pop("pipeline") == NAME
                found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.scrape().get(name, {}).get(tuple(sorted(labels.items())))


def build(world: World, telemetry: Telemetry) -> Stand:
    store = MemoryStore()
    source = ObservedSource(world.log)
    fruit = MemoryReference(freshness=ReferenceFreshness(timedelta(0), keeps_when_away=True))
    pipeline = replace(
        world.pipeline(store),
        engine=ReadingEngine(store, world.log),
        sources=(source,),
        references=(fruit,),
    )
    return Stand(world, pipeline, source, fruit, telemetry)


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2, 3, 4, 5], [10]]
    return world


@pytest.fixture
def stand(world: World) -> Iterator[Stand]:
    with open_telemetry(MetricsConfig(prometheus=0), NAME, "here") as telemetry:
        yield build(world, telemetry)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


# --- what Prometheus sees -----------------------------------------------------------------------


def test_a_scrape_shows_what_the_checkpoints_say(stand: Stand) -> None:
    stand.loop().run_until_caught_up()
    seen = stand.scrape()
    of_source = (("source", "numbers"),)
    # Two epochs, of three and two records, and one of another partition.
    assert seen["laminar_source_records_total"] == {of_source: 6}
    assert seen["laminar_source_bytes_total"] == {of_source: 2000}
    assert seen["laminar_source_chunks_total"] == {of_source: 4}
    assert seen["laminar_source_fetch_seconds_total"] == {of_source: 1.0}
    assert seen["laminar_source_decode_seconds_total"] == {of_source: 0.5}
    assert seen["laminar_source_pauses_total"] == {of_source: 6}
    assert seen["laminar_source_errors_total"] == {of_source: 8}
    # Of the newest epoch: both chunks took less than 8 ms.
    assert seen["laminar_source_chunk_p99_seconds"] == {of_source: 0.008}
    assert seen["laminar_source_dead_letters_total"] == {of_source: 2}
    assert seen["laminar_source_late_total"] == {of_source: 4}
    assert seen["laminar_source_ahead_total"] == {of_source: 10}
    assert seen["laminar_source_newest_watermark_seconds"] == {of_source: NEWEST / 1_000_000}
    assert seen["laminar_source_commits_total"] == {of_source: 2}
    assert seen["laminar_source_commit_failures_total"] == {of_source: 0}
    assert seen["laminar_source_up"] == {of_source: 1}
    assert seen["laminar_epoch_number"] == {(): 2}
    assert seen["laminar_sink_epoch"] == {(("sink", "table"),): 2}
    assert seen["laminar_epoch_last_success_seconds"] == {(): stand.world.clock.now().timestamp()}
    assert seen["laminar_epoch_duration_seconds_count"] == {(): 2}
    assert seen["laminar_epoch_step_duration_seconds_count"][(("step", "MoveLatest"),)] == 2
    assert set(seen["laminar_source_lag"].values()) == {0}


def test_lag_is_told_of_each_partition_and_follows_every_look(stand: Stand) -> None:
    stand.loop().run_epochs(1)
    lag = {"source": "numbers", "unit": "records"}
    assert stand.value("laminar_source_lag", partition="numbers/0", **lag) == 2
    assert stand.value("laminar_source_lag", partition="numbers/1", **lag) == 0
    stand.world.log.partitions[1] += [1, 2, 3, 4]
    loop = stand.loop()
    loop.should_stop = iter((False, True)).__next__
    stand.world.clock.sleep(1)
    loop.run_until_caught_up()
    assert stand.value("laminar_source_lag", partition="numbers/1", **lag) == 1


def test_headroom_is_that_of_the_partition_with_the_least(stand: Stand) -> None:
    stand.loop().run_epochs(1)
    assert "laminar_source_headroom" not in stand.scrape()
    stand.source.headroom = 0.25
    stand.loop().run_epochs(1)
    assert stand.value("laminar_source_headroom", source="numbers") == 0.25


def test_an_epoch_is_counted_by_the_process_that_finishes_it(stand: Stand) -> None:
    other = EpochRunner(stand.pipeline)
    other.run()
    # This one finds it finished.
    EpochLoop(
        stand.pipeline,
        _Fixed(EpochRunner(stand.pipeline), EpochNumber(1)),
        lambda event: stand.telemetry.follow(event, stand.pipeline),
    ).run_epochs(1)
    seen = stand.scrape()
    assert "laminar_source_records_total" not in seen
    assert seen["laminar_epoch_number"] == {(): 1}, "it is how far the pipeline is, all the same"


@dataclass
class _Fixed:
    """Runs the same epoch whenever asked."""

    runner: EpochRunner
    epoch: EpochNumber

    def run(self, epoch: EpochNumber | None = None) -> EpochReport:
        return self.runner.run(self.epoch)


def test_an_epoch_that_takes_two_tries_is_counted_once_and_so_is_the_failure(stand: Stand) -> None:
    stand.world.table.fail_next_commit = True
    with pytest.raises(SinkUnavailable) as caught:
        stand.loop().run_epochs(1)
    assert "laminar_source_records_total" not in stand.scrape()
    stand.telemetry.follow(Retrying(caught.value, 1.0), stand.pipeline)
    stand.world.clock.sleep(40)
    stand.loop().run_epochs(1)
    assert stand.value("laminar_source_records_total", source="numbers") == 4
    assert stand.value("laminar_epoch_failures_total", kind="sink_unavailable") == 1
    # From the beginning of the attempt, whoever had to wait for what.
    assert stand.value("laminar_epoch_duration_seconds_sum") == 40
    assert stand.value("laminar_epoch_duration_seconds_bucket", le="30.0") == 0
    assert stand.value("laminar_epoch_duration_seconds_bucket", le="60.0") == 1


def test_a_source_that_could_not_be_told_is_a_failure_of_its_own(stand: Stand) -> None:
    stand.source.refuses = True
    stand.loop().run_epochs(1)
    assert stand.value("laminar_source_commits_total", source="numbers") == 0
    assert stand.value("laminar_source_commit_failures_total", source="numbers") == 1


def test_a_source_that_is_away_is_down_and_has_no_lag(stand: Stand) -> None:
    stand.loop().run_epochs(1)
    away = SourceBacklog(SourceId("numbers"), error=SourceUnavailable("numbers", "no route"))
    stand.telemetry.waiting(Backlog((away,), datetime.now(UTC)))
    assert stand.value("laminar_source_up", source="numbers") == 0
    assert "laminar_source_lag" not in stand.scrape()


def test_a_reference_table_that_is_away_and_how_old_its_copy_is(stand: Stand) -> None:
    stand.loop().run_epochs(1)
    assert stand.value("laminar_reference_unavailable", reference="fruit") == 0
    assert stand.value("laminar_reference_rows", reference="fruit") == 1
    assert stand.value("laminar_reference_bytes", reference="fruit") == 3
    looked_at = stand.world.clock.now().timestamp()
    assert stand.value("laminar_reference_checked_seconds", reference="fruit") == looked_at
    stand.fruit.away = True
    stand.world.clock.sleep(60)
    stand.loop().run_epochs(1)
    assert stand.value("laminar_reference_unavailable", reference="fruit") == 1
    assert stand.value("laminar_reference_checked_seconds", reference="fruit") == looked_at


def test_a_process_that_begins_shows_how_far_the_pipeline_is(stand: Stand) -> None:
    stand.telemetry.begin(stand.pipeline)
    assert "laminar_epoch_number" not in stand.scrape()
    EpochRunner(stand.pipeline).run()
    stand.telemetry.begin(stand.pipeline)
    assert stand.value("laminar_epoch_number") == 1
    assert stand.value("laminar_sink_epoch", sink="table") == 1


def test_series_stay_few(stand: Stand) -> None:
    """Of files, and of very many partitions, only the sum."""
    files = tuple(
        SourceRange(
            start=FilePosition(path=f"{n}.csv", byte_offset=0),
            end=FilePosition(path=f"{n}.csv", byte_offset=10),
        )
        for n in range(3)
    )
    topic = tuple(
        SourceRange(
            start=KafkaPosition(topic="t", partition=n, offset=5),
            end=KafkaPosition(topic="t", partition=n, offset=7),
        )
        for n in range(MOST_PARTITIONS + 1)
    )
    sources = (SourceBacklog(SourceId("files"), files), SourceBacklog(SourceId("topic"), topic))
    stand.telemetry.waiting(Backlog(sources, datetime.now(UTC)))
    assert stand.scrape()["laminar_source_lag"] == {
        (("source", "files"), ("unit", "bytes")): 30,
        (("source", "topic"), ("unit", "records")): 2 * (MOST_PARTITIONS + 1),
    }


def test_nobody_listens_any_more_when_it_ends(world: World) -> None:
    with open_telemetry(MetricsConfig(prometheus=0), NAME, "here") as telemetry:
        port = int((telemetry.address or "").removesuffix("/metrics").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    # And the next may have the port.
    with open_telemetry(MetricsConfig(prometheus=port), NAME, "here") as again:
        assert again.address == telemetry.address


# --- what a collector gets ----------------------------------------------------------------------


def test_a_process_of_one_epoch_pushes_what_the_epoch_adds(
    world: World, collector: Collector
) -> None:
    config = MetricsConfig(otlp=collector.url, prometheus=1)
    stand = build(world, Telemetry(NAME))
    for epoch, records in ((1, 4), (2, 2)):
        with open_telemetry(config, NAME, "here", is_one_epoch=True) as telemetry:
            assert telemetry.address is None, "nobody could scrape it"
            stand.telemetry = telemetry
            stand.loop().run_epochs(1)
        assert len(collector.pushes) == epoch
        records_metric = collector.metrics()["laminar.source.records"]
        assert records_metric.sum.aggregation_temporality == 1, "delta"
        assert collector.value("laminar.source.records") == records
        assert collector.value("laminar.epoch.number") == epoch
        duration = collector.metrics()["laminar.epoch.duration"].histogram
        assert (duration.aggregation_temporality, duration.data_points[0].count) == (1, 1)
    assert set(collector.paths) == {"/v1/metrics"}
    # Both are of one instance: a collector adds them up.
    assert [collector.resource(push)["service.instance.id"] for push in (0, 1)] == [
        "memory-epochs",
        "memory-epochs",
    ]
    assert collector.resource()["service.name"] == "laminar"


def test_a_process_that_stays_pushes_totals(
    world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "86400000")
    with open_telemetry(MetricsConfig(otlp=collector.url), NAME, "here") as telemetry:
        build(world, telemetry).loop().run_until_caught_up()
    # All is sent by the end, whatever the interval.
    assert collector.value("laminar.source.records", -1) == 6
    metric = collector.metrics()["laminar.source.records"]
    assert metric.sum.aggregation_temporality == 2, "cumulative"
    assert metric.sum.is_monotonic


@pytest.mark.parametrize("answer", [400, 503])
def test_a_collector_that_refuses_is_told_once_and_fails_nothing(
    world: World, collector: Collector, caplog: pytest.LogCaptureFixture, answer: int
) -> None:
    collector.answer = answer
    with caplog.at_level(logging.INFO):
        with open_telemetry(MetricsConfig(otlp=collector.url), NAME, "here") as telemetry:
            stand = build(world, telemetry)
            stand.loop().run_until_caught_up()
    assert stand.world.table.ledger == 2
    assert collector.paths, "it was tried"
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert f"metrics cannot be pushed to {collector.url}/v1/metrics" in warning.getMessage()
    reason = {400: "Bad Request", 503: "Service Unavailable"}[answer]
    assert reason in warning.getMessage()


def test_a_collector_that_is_away_does_not_hold_up_an_epoch_for_long(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        # Bound and not listening: whoever connects is refused.
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        begun = time.monotonic()
        with open_telemetry(MetricsConfig(otlp=url), NAME, "here", is_one_epoch=True) as telemetry:
            build(world, telemetry).loop().run_until_caught_up()
        assert time.monotonic() - begun < 20
    assert world.table.ledger == 2
    assert len([each for each in caplog.records if "cannot be pushed" in each.getMessage()]) == 1


# --- what cannot be -----------------------------------------------------------------------------


def test_an_address_that_somebody_has_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"127.0.0.1:{port}.*in use") as caught:
            with open_telemetry(MetricsConfig(prometheus=port), NAME, "pipeline.yml"):
                pass
    assert caught.value.where == "pipeline.yml"


@pytest.mark.parametrize("missing", ["opentelemetry.sdk.metrics", "opentelemetry.exporter"])
def test_missing_packages_are_named_with_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [each for each in sys.modules if each.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidConfig, match="not installed") as caught:
        with open_telemetry(MetricsConfig(otlp="http://127.0.0.1:4318"), NAME, "pipeline.yml"):
            pass
    assert "laminar-dagster[metrics]" in caught.value.advice()
    with open_telemetry(MetricsConfig(), NAME, "pipeline.yml") as telemetry:
        assert not telemetry.is_on


def test_without_being_asked_for_nothing_is_loaded() -> None:
    program = """
import sys
from laminar_dagster.config.metrics import MetricsConfig
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.runtime.telemetry import open_telemetry
with open_telemetry(MetricsConfig(), PipelineName("p"), "here") as telemetry:
    telemetry.failed(ValueError())
assert not [each for each in sys.modules if each.startswith(("opentelemetry", "prometheus"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class _Broken:
    """Meters that cannot measure."""

    def add(self, metric: Metric, amount: float, attributes: Attributes) -> None:
        raise RuntimeError("password=hunter2 out of ink")

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        raise RuntimeError("out of paper")

    def put(self, metric: Metric, points: Points) -> None:
        raise RuntimeError("out of paper")


def test_what_cannot_be_measured_is_told_once_and_fails_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry(NAME, _Broken())
    telemetry.failed(ValueError())
    build(world, telemetry).loop().run_until_caught_up()
    assert world.table.ledger == 2
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert "out of ink" in warning
    assert "hunter2" not in warning


# --- the list -----------------------------------------------------------------------------------


def test_every_metric_is_in_the_documentation() -> None:
    text = DOCS.read_text()
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `laminar.")}
    assert listed == {each.name for each in METRICS}


def test_every_metric_has_its_series(stand: Stand) -> None:
    stand.source.headroom = 0.5
    stand.loop().run_until_caught_up()
    stand.telemetry.failed(ValueError())
    families = {name.removeprefix("laminar_") for name in stand.scrape()}
    for metric in METRICS:
        if metric.name == "laminar.epoch.watermark":
            continue  # The pipeline in memory has none.
        stem = metric.name.removeprefix("laminar.").replace(".", "_")
        assert any(name.startswith(stem) for name in families), metric.name
    assert not math.isnan(sum(sum(each.values()) for each in stand.scrape().values()))

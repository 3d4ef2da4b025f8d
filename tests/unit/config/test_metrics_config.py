"""The ``metrics`` section of ``pipeline.yml``."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.metrics import MetricsConfig, parse_listen
from laminar_dagster.config.pipeline import read_pipeline
from tests.unit.config.folders import CONFIG, load, mistakes, write


def test_nothing_is_measured_unless_asked_for(tmp_path: Path) -> None:
    config = read_pipeline(write(tmp_path, {}))
    assert config.metrics == MetricsConfig()
    assert config.metrics.listen is None
    assert config.metrics.endpoint is None
    assert config.checks.min_retention_headroom == 0.1


def test_addresses_as_they_stand_in_the_file(tmp_path: Path) -> None:
    lines = "metrics: {prometheus: 127.0.0.1:9464, otlp: 'http://127.0.0.1:4318/'}\n"
    config = read_pipeline(write(tmp_path, {"pipeline.yml": CONFIG + lines}))
    assert str(config.metrics.listen) == "127.0.0.1:9464"
    assert config.metrics.endpoint == "http://127.0.0.1:4318/v1/metrics"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (9464, "127.0.0.1:9464"),
        ("9464", "127.0.0.1:9464"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("metrics.example.com:80", "metrics.example.com:80"),
        ("[::1]:9464", "[::1]:9464"),
        (0, "127.0.0.1:0"),
    ],
)
def test_a_port_alone_is_of_this_machine(written: int | str, read: str) -> None:
    assert str(parse_listen(written)) == read


@pytest.mark.parametrize(
    "wrong", ["", "9464x", "host", "host:", ":9464", "h:65536", -1, True, "a b:1"]
)
def test_what_is_no_address_is_refused(wrong: int | str) -> None:
    with pytest.raises(ValueError, match="is not a port or an address"):
        parse_listen(wrong)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("metrics: {prometheus: here}", "is not a port or an address such as 127.0.0.1:9464"),
        ("metrics: {otlp: 127.0.0.1:4318}", "`otlp` is not an address such as http://127"),
        ("metrics: {otlp: 'http://h:99999'}", "Port out of range"),
        ("metrics: {otlp: 'http://u:hunter2@h'}", "give them as OTEL_EXPORTER_OTLP_HEADERS"),
        ("metrics: {promethues: 1}", "unknown key `promethues` (did you mean `prometheus`?)"),
        ("checks: {min_retention_headroom: 2}", "Expected `float` <= 1"),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, line: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, {"pipeline.yml": f"{CONFIG}{line}\n"})
    assert found.startswith("pipeline.yml:3")
    assert expected in found
    assert "hunter2" not in found


def test_metrics_change_nothing_that_is_computed(tmp_path: Path) -> None:
    before = load(tmp_path, {}).fingerprint
    after = load(tmp_path, {"pipeline.yml": f"{CONFIG}metrics: {{prometheus: 1}}\n"})
    assert after.fingerprint == before

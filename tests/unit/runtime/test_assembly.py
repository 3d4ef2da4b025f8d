"""What a pipeline says for all of its sources reaches those that do not say otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import RetentionExpired
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.assembly import assemble, build_source, known_connectors
from tests.unit.config.folders import CONFIG, load, mistakes

SOURCE = """CREATE SOURCE TABLE s (n INT)
WITH (connector = 'file', path = 'in', format = 'ndjson'{more});
CREATE VIEW v AS SELECT n FROM s;
"""


def model_of(folder: Path, config: str, more: str = "") -> PipelineModel:
    files = {"pipeline.yml": CONFIG + config, "a.sql": SOURCE.format(more=more)}
    return load(folder, files)


@pytest.mark.parametrize(
    ("config", "more", "is_idle"),
    [
        ("", "", True),
        ("idle_timeout: 10m\n", "", False),
        ("idle_timeout: 10m\n", ", 'idle.timeout' = '30s'", True),
    ],
)
def test_the_idle_timeout(tmp_path: Path, config: str, more: str, is_idle: bool) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 1}\n')
    model = model_of(tmp_path, config, more)
    source = build_source(model.sources[0], model.config, tmp_path, None)
    now = datetime.now(UTC) + timedelta(minutes=5)
    first = source.plan(None, (), Admission(), now)
    second = source.plan(first, tuple(part.end for part in first.ranges), Admission(), now)
    assert bool(second.idle) is is_idle


@pytest.mark.parametrize("config", ["", "on_gap: earliest\n"])
def test_what_a_gap_does(tmp_path: Path, config: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"n": 1}\n{"n": 2}\n')
    model = model_of(tmp_path, config)
    source = build_source(model.sources[0], model.config, tmp_path, None)
    now = datetime.now(UTC)
    first = source.plan(None, (), Admission(max_records=1), now)
    (tmp_path / "in" / "a").unlink()
    ends = tuple(part.end for part in first.ranges)
    if config:
        assert len(source.plan(first, ends, Admission(), now).gaps) == 1
    else:
        with pytest.raises(RetentionExpired):
            source.plan(first, ends, Admission(), now)


def test_a_pipeline_knows_what_its_sinks_publish_and_how(tmp_path: Path) -> None:
    """The fingerprint says nothing of it, and a promotion must."""
    sinks = """
CREATE SINK kept FROM v
WITH (connector = 'delta', path = 'kept', mode = 'upsert', key = 'n');
CREATE SINK lake FROM v WITH (connector = 'delta', path = 'lake');
"""
    files = {"pipeline.yml": CONFIG, "a.sql": SOURCE.format(more="") + sinks}
    model = load(tmp_path, files)
    (tmp_path / "in").mkdir()
    found = {each.sink_id: each for each in assemble(model, tmp_path, None).published or ()}
    assert {name: (each.view, each.mode, each.key) for name, each in found.items()} == {
        "kept": ("v", "upsert", ("n",)),
        "lake": ("v", "append", ()),
    }


def test_properties_of_librdkafka_are_told_at_their_lines(tmp_path: Path) -> None:
    files = """CREATE SOURCE TABLE s (n INT) WITH (
    connector = 'kafka', topic = 't', 'group.id' = 'g', 'bootstrap.servers' = 'b:9092',
    'kafka.security.protocol' = 'SASL_SSL',
    'kafka.ssl.ca.loction' = '/ca.pem'
);
CREATE VIEW v AS SELECT n FROM s;
CREATE SINK kept FROM v WITH (
    connector = 'kafka', topic = 'o', 'bootstrap.servers' = 'b:9092',
    'kafka.compression.type' = 'zipp'
);
"""
    found = mistakes(tmp_path, {"a.sql": files}, connectors=known_connectors())
    assert [line.split(":")[1] for line in found] == ["4", "9"]
    assert "did you mean `kafka.ssl.ca.location`?" in found[0]
    assert 'Invalid value "zipp"' in found[1]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("'schema.registry.url' = 'http://registry:8081', {registry}", 3),
        ("'schema.registry.url' = 'https://registry:8081', {registry}", None),
        ("'schema.registry.url' = 'http://127.0.0.1:8081', {registry}", None),
        ("'schema.registry.url' = 'http://[::1]:8081', {registry}", None),
        ("'schema.registry.url' = 'http://registry:8081'", None),
        ("'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'PLAIN'", 3),
        ("'kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.mechanism' = 'PLAIN'", None),
        (
            "'kafka.security.protocol' = 'SASL_PLAINTEXT',"
            " 'kafka.sasl.mechanism' = 'SCRAM-SHA-256'",
            None,
        ),
    ],
)
def test_secrets_in_plain_text_are_told(tmp_path: Path, options: str, line: int | None) -> None:
    registry = "'schema.registry.username' = 'u', 'schema.registry.password' = '${PASSWORD}'"
    text = f"""CREATE SOURCE TABLE s (n INT) WITH (
    connector = 'kafka', topic = 't', 'group.id' = 'g', 'bootstrap.servers' = 'b:9092',
    {options.format(registry=registry)}
);
CREATE VIEW v AS SELECT n FROM s;
"""
    found = load(tmp_path, {"a.sql": text}, {"PASSWORD": "s3cret"}, known_connectors()).warnings
    assert [each.split(":")[1] for each in found] == ([str(line)] if line else [])
    assert "s3cret" not in str(found)

"""A pipeline loads the adapters that it names, and no client of another system."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.plugins.loaded_modules import Loaded, modules_of

# How many of our modules a command loads for a pipeline from files to SQLite. Raised only for what
# such a pipeline needs; lowered when it needs less.
HELP = 11
VALIDATE = 241

SOURCES = """
CREATE SOURCE TABLE clicks (n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)
WITH (connector = 'file', path = 'input', format = 'ndjson');
"""
TO_SQLITE = "CREATE SINK kept FROM v WITH (connector = 'sqlite', path = 'out.db');"
TO_DELTA = "CREATE SINK lake FROM v WITH (connector = 'delta', path = 'lake');"


def write_pipeline(root: Path, name: str, sinks: str) -> None:
    folder = root / "dbt_like_configs" / name
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(f"name: {name}\nstore: state/{name}\n")
    (folder / "sources.sql").write_text(SOURCES)
    (folder / "sinks.sql").write_text(sinks)
    (folder / "models" / "v.sql").write_text("SELECT n, ts FROM clicks")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    write_pipeline(tmp_path, "clicks", TO_SQLITE)
    return tmp_path


def systems(loaded: Loaded) -> set[str]:
    """The adapters of systems among our modules, such as ``sinks.kafka``."""
    parts = (each.split(".") for each in loaded.ours)
    return {f"{each[1]}.{each[2]}" for each in parts if len(each) > 3}


def test_help_loads_next_to_nothing(tmp_path: Path) -> None:
    loaded = modules_of(tmp_path, "--help")
    assert len(loaded.ours) <= HELP
    assert not loaded.clients | ({"pyarrow", "sqlglot", "dagster", "pyspark"} & loaded.names)


def test_validate_loads_what_the_pipeline_names(root: Path) -> None:
    loaded = modules_of(root, "validate", "clicks")
    assert {"sources.file", "sinks.sqlite"} <= systems(loaded)
    assert not {"sources.kafka", "sinks.kafka", "clients.kafka", "sinks.delta"} & systems(loaded)
    assert not loaded.clients
    assert not {"dagster", "pyspark"} & loaded.names
    assert len(loaded.ours) <= VALIDATE


def test_what_other_pipelines_name_is_not_loaded(root: Path) -> None:
    """Though their sinks are looked at, for those that write to the same table."""
    write_pipeline(root, "lakes", TO_DELTA)
    assert not modules_of(root, "validate", "clicks").clients
    assert modules_of(root, "validate", "lakes").clients == {"deltalake"}

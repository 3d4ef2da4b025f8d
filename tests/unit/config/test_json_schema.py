"""The JSON schema of ``pipeline.yml``: it takes what is read, and says what each key means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from laminar_dagster.config.json_schema import pipeline_schema
from laminar_dagster.config.pipeline import read_pipeline
from laminar_dagster.core.errors import InvalidConfig
from tests.unit.cli.conditions import Laminar, Project

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    path
    for folder in ("dbt_like_configs", "examples")
    for path in (ROOT / folder).rglob("pipeline.yml")
)
LEAST = "name: shop\nstore: here\n"


def mistakes(text: str) -> list[str]:
    judge = jsonschema.Draft202012Validator(pipeline_schema())
    return [each.message for each in judge.iter_errors(yaml.safe_load(text))]


def is_read(folder: Path, text: str) -> bool:
    file = folder / "shop" / "pipeline.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    try:
        read_pipeline(file.parent, {"N": "3"})
    except InvalidConfig:
        return False
    return True


def test_it_is_a_schema() -> None:
    judge = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    assert list(judge.iter_errors(pipeline_schema())) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_pipeline_of_the_project_passes(path: Path) -> None:
    assert mistakes(path.read_text()) == []


@pytest.mark.parametrize(
    "more",
    [
        "",
        "buckets: ${N}",
        "on_gap: earliest",
        "epoch: {max_records: 5, max_bytes: 1MiB}",
        "epoch: {max_bytes: 1024}",
        "schedule: null",
        "owners: ['team:data']",
        "spark: {spark.sql.shuffle.partitions: 2, spark.ui.enabled: true, spark.app.name: x}",
        "metrics: {prometheus: 9464}",
        "sources: [{name: s, connector: file, columns: {a: INT}, options: {path: in}}]",
    ],
)
def test_what_is_read_passes(tmp_path: Path, more: str) -> None:
    assert is_read(tmp_path, LEAST + more)
    assert mistakes(LEAST + more) == []


@pytest.mark.parametrize(
    "more",
    [
        "bucket: 4",
        "buckets: many",
        "buckets: 0",
        "on_gap: latest",
        "epoch: {max_record: 5}",
        "owners: team:data",
        "sinks: [{name: s, view: v}]",
        "checks: {max_state_growth: 1}",
    ],
)
def test_what_is_refused_is_underlined(tmp_path: Path, more: str) -> None:
    assert not is_read(tmp_path, LEAST + more)
    assert mistakes(LEAST + more)


def test_every_key_says_what_it_means() -> None:
    silent = [
        f"{name}.{key}"
        for name, model in pipeline_schema()["$defs"].items()
        for key, schema in model["properties"].items()
        if not schema.get("description")
    ]
    assert not silent


def test_a_new_project_has_it_beside_its_pipeline(tmp_path: Path) -> None:
    root = tmp_path / "project"
    assert Laminar()("init", str(root), "--name", "clicks").exit_code == 0
    project = Project(root)
    first = (project.folder / "pipeline.yml").read_text().partition("\n")[0]
    assert first == "# yaml-language-server: $schema=pipeline.schema.json"
    written: Any = json.loads((project.folder / "pipeline.schema.json").read_text())
    assert written == pipeline_schema() == Laminar().json("schema")

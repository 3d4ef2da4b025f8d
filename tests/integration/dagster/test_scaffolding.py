"""A pipeline in somebody's dg project: scaffolded, checked, listed and launched by dg itself."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest

from infra.spark_connect import SparkConnectEndpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# As `create-dagster project shop` lays it out.
PYPROJECT = """
[project]
name = "shop"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["dagster"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
registry_modules = ["shop.components.*"]
"""
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
TYPE = "laminar_dagster.StreamPipelineComponent"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    for path in ("src/shop/__init__.py", "src/shop/defs/__init__.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "src" / "shop" / "definitions.py").write_text(DEFINITIONS)
    (root / "home").mkdir()
    (root / "home" / "dagster.yaml").touch()
    return root


def dg(
    shop: Path, *args: str, exit_code: int = 0, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    done = subprocess.run(
        ["dg", *args],
        cwd=shop,
        env={
            **os.environ,
            "DAGSTER_HOME": str(shop / "home"),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
            "PYTHONPATH": str(shop / "src"),
            "VIRTUAL_ENV": sys.prefix,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.service("spark_connect")
def test_a_scaffolded_pipeline_runs(shop: Path, spark_connect: SparkConnectEndpoint) -> None:
    dg(shop, "scaffold", "defs", TYPE, "clicks")
    folder = shop / "src" / "shop" / "defs" / "clicks"
    assert (folder / "defs.yaml").read_text().startswith(f"type: {TYPE}\n")
    assert (folder / "pipeline.schema.json").exists()
    dg(shop, "check", "defs")
    listed = dg(shop, "list", "defs", "--json")
    for key in ("clicks/checkpoint_manifest", "clicks/minutes", "clicks/purchases"):
        assert json.dumps(key) in listed
    remote = {
        **spark_connect.environment(),
        "SPARK_REMOTE": spark_connect.session_url(uuid.uuid4()),
    }
    dg(shop, "launch", "--job", "clicks_epoch_and_commit", variables=remote)
    with closing(sqlite3.connect(shop / "data" / "clicks" / "output" / "clicks.db")) as output:
        assert output.execute("SELECT count(*) > 0 FROM clicks_per_minute").fetchone() == (1,)
    # Another one beside it, and nothing that is there is replaced.
    dg(shop, "scaffold", "defs", TYPE, "team/visits")
    dg(shop, "check", "defs")
    given = shop / "data" / "orders" / "input" / "server-a.ndjson"
    given.parent.mkdir(parents=True)
    given.write_text("mine\n")
    told = dg(shop, "scaffold", "defs", TYPE, "orders", exit_code=1)
    assert f"{given} is there already" in told
    assert given.read_text() == "mine\n"

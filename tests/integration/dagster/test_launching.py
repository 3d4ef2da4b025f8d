"""The first epochs of a project, launched by Dagster's commands on an instance that has nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.config.example_project import project_files
from laminar_dagster.core.ids import PipelineName

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DG = """
[project]
name = "shop"
version = "0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "dbt_like_configs"
defs_module = "dbt_like_configs"
code_location_target_module = "definitions"
"""


@dataclass(frozen=True)
class Place:
    project: Path
    home: Path
    environment: dict[str, str]

    def run(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def launch(self, *command: str) -> None:
        status, text = self.run(*command)
        assert status == 0, text

    def materialized(self, asset: str) -> set[str]:
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            return instance.get_materialized_partitions(dg.AssetKey(asset.split("/")))


@pytest.fixture
def place(tmp_path: Path, spark_connect: SparkConnectEndpoint) -> Place:
    project, home = tmp_path / "project", tmp_path / "home"
    for path, text in project_files(PipelineName("clicks")):
        text = text.replace("max_records: 100000", "max_records: 200")
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    (project / "pyproject.toml").write_text(DG)
    home.mkdir()
    (home / "dagster.yaml").touch()
    environment = {
        **os.environ,
        **spark_connect.environment(),
        "SPARK_REMOTE": spark_connect.session_url(uuid.uuid4()),
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return Place(project, home, environment)


def test_epochs_are_launched_without_a_daemon(place: Place) -> None:
    job = "clicks_epoch_and_commit"
    place.launch("dg", "launch", "--assets", "*")
    place.launch("dg", "launch", "--job", job, "--partition", f"{2:012d}")
    place.launch("dagster", "job", "execute", "-f", "definitions.py", "-j", job)
    keys = {f"{epoch:012d}" for epoch in (1, 2, 3)}
    assert place.materialized("clicks/epoch_plan") == keys
    assert place.materialized("clicks/checkpoint_manifest") == keys

    for command in (
        ("dg", "launch", "--job", job, "--partition", f"{9:012d}"),
        ("dg", "launch", "--assets", "*", "--partition", f"{9:012d}"),
    ):
        status, text = place.run(*command)
        assert status == 2, text
        assert "error[epoch_not_reached]: epoch 9 cannot be run yet" in text
        assert f"launch partition {4:012d}, or leave the partition out" in text
        assert "Traceback" not in text

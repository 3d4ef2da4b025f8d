"""Dagster's own commands on this repository as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(*command: str, home: Path) -> str:
    """What a command of the environment prints; it has to succeed."""
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return text


def test_the_definitions_are_valid(tmp_path: Path) -> None:
    text = run("dagster", "definitions", "validate", home=tmp_path)
    assert "Validation successful for code location laminar" in text


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("check", "yaml"), "All component YAML validated successfully"),
        (("check", "defs"), "All definitions loaded successfully"),
        (("list", "defs", "--json"), "clickstream/checkpoint_manifest"),
        (("list", "components", "--json"), "StreamPipelineComponent"),
    ],
)
def test_dg_knows_the_project(tmp_path: Path, command: tuple[str, ...], told: str) -> None:
    assert told in run("dg", *command, home=tmp_path)

"""The project that `make ui` shows: two pipelines on one input, some epochs run, data waiting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.clickstream import generator

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parent.parent
# Small epochs, so that there are several to look at.
_EPOCH: Final = ("max_records: 250000", "max_records: 20000")
# Runs start in a worker that keeps Spark.
_WARM: Final = """
run_launcher:
  module: laminar_dagster.orchestration.warm.launcher
  class: WarmRunLauncher
"""
# What the console script does, whatever the PATH.
_LAMINAR: Final = "from laminar_dagster.cli.main import main; main()"
_RUNS: Final = (("clickstream", 4), ("page_speed", 3))


class StageFailed(Exception):
    """A part of the stage could not be set up."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where everything is."""

    home: Path

    @property
    def project(self) -> Path:
        """What Dagster loads."""
        return self.home / "project"

    @property
    def dagster_home(self) -> Path:
        """What Dagster remembers."""
        return self.home / "dagster"

    def environment(self) -> dict[str, str]:
        """Of every process that shall see the stage."""
        return {
            **os.environ,
            "DAGSTER_HOME": str(self.dagster_home.absolute()),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        }

    def is_set(self) -> bool:
        """Whether an earlier call has got to its end."""
        return (self.home / "ready").exists()

    def set_up(self, events: int, tell: Callable[[str], None]) -> None:
        """Write the project and its input, and run epochs of both pipelines.

        Raises:
            StageFailed: An epoch did not run.
        """
        shutil.rmtree(self.home, ignore_errors=True)
        configs = self.project / "dbt_like_configs"
        shutil.copytree(_ROOT / "dbt_like_configs" / "clickstream", configs / "clickstream")
        shutil.copytree(_HERE / "page_speed", configs / "page_speed")
        config = configs / "clickstream" / "pipeline.yml"
        config.write_text(config.read_text().replace(*_EPOCH))
        for name in ("definitions.py", "workspace.yaml"):
            shutil.copy(_ROOT / name, self.project)
        self.dagster_home.mkdir(parents=True)
        instance = (_ROOT / "examples" / "dagster_home" / "sqlite" / "dagster.yaml").read_text()
        (self.dagster_home / "dagster.yaml").write_text(instance + _WARM)
        tell(f"writing {events:,} clicks of four servers")
        generator.write(self.project / ".laminar" / "clickstream" / "input", events)
        for pipeline, epochs in _RUNS:
            tell(f"running {epochs} epochs of {pipeline}, each a run of Dagster")
            self._run(pipeline, epochs)
        (self.home / "ready").touch()

    def _run(self, pipeline: str, epochs: int) -> None:
        program = [sys.executable, "-c", _LAMINAR, "--project", str(self.project)]
        done = subprocess.run(
            [*program, "run", pipeline, "--epochs", str(epochs)],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            raise StageFailed(f"`laminar run {pipeline}` ended with {done.returncode}")

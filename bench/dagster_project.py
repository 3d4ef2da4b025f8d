"""What the benchmarks of Dagster run: a small pipeline, and the same two runs in plain Dagster.

Both are code locations of one ``dagster dev``, so that they share its daemon and take turns.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.errors import ServiceFailed

SAMPLES: Final = Path(__file__).parents[1] / "examples" / "dagster_home" / "sqlite"
OURS: Final = "laminar"
PLAIN: Final = "plain"
_PATIENCE: Final = 240.0

_PIPELINE: Final = {
    "pipeline.yml": (
        "name: clicks\n"
        "store: state\n"
        "epoch: {max_delay: 0s}\n"
        "sinks:\n"
        "  - {name: table, view: totals, connector: sqlite, options: {path: out.db, table: t}}\n"
    ),
    "sources.sql": (
        "CREATE SOURCE TABLE numbers (value BIGINT NOT NULL, ts TIMESTAMP,\n"
        "  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)\n"
        "WITH (connector = 'file', path = 'input', pattern = '*.ndjson', format = 'ndjson');\n"
    ),
    "models/totals.sql": "SELECT value * 2 AS twice, ts FROM numbers WHERE value > 0\n",
}
_DEFINITIONS: Final = """
from pathlib import Path

from laminar_dagster.orchestration.pipeline_defs import build_project_defs

defs = build_project_defs(Path(__file__).parent)
"""
# As ours: a sensor sees something new, a run prepares, a sensor sees that, a run commits.
_PLAIN_DEFINITIONS: Final = """
from pathlib import Path

import dagster as dg

FOLDER = Path(__file__).parent / "plain"


def _step(what, seen, made):
    @dg.op(name=f"{what}_op")
    def step():
        for file in (FOLDER / seen).iterdir():
            (FOLDER / made / file.name).touch()

    @dg.job(name=what, executor_def=dg.in_process_executor)
    def job():
        step()

    @dg.sensor(name=f"{what}_sensor", job=job, minimum_interval_seconds=5)
    def sensor():
        done = {file.name for file in (FOLDER / made).iterdir()}
        new = sorted(file.name for file in (FOLDER / seen).iterdir() if file.name not in done)
        return dg.RunRequest(run_key=new[0]) if new else dg.SkipReason("nothing new")

    return job, sensor


_prepare = _step("prepare", "input", "prepared")
_commit = _step("commit", "prepared", "committed")
defs = dg.Definitions(jobs=[_prepare[0], _commit[0]], sensors=[_prepare[1], _commit[1]])
"""
_WORKSPACE: Final = f"""
load_from:
  - python_file: {{relative_path: definitions.py, location_name: {OURS}}}
  - python_file: {{relative_path: plain_definitions.py, location_name: {PLAIN}}}
"""
_LAUNCHER: Final = """
run_launcher:
  module: laminar_dagster.orchestration.warm.launcher
  class: WarmRunLauncher
"""


@dataclass(frozen=True, slots=True)
class DagsterProject:
    """A project with both code locations."""

    folder: Path

    @classmethod
    def write(cls, folder: Path) -> DagsterProject:
        """Write its files into an empty folder."""
        pipeline = folder / "dbt_like_configs" / "clicks"
        for name, text in _PIPELINE.items():
            (pipeline / name).parent.mkdir(parents=True, exist_ok=True)
            (pipeline / name).write_text(text)
        for name in ("input", "plain/input", "plain/prepared", "plain/committed"):
            (folder / name).mkdir(parents=True)
        (folder / "definitions.py").write_text(_DEFINITIONS)
        (folder / "plain_definitions.py").write_text(_PLAIN_DEFINITIONS)
        (folder / "workspace.yaml").write_text(_WORKSPACE)
        return cls(folder)

    def offer(self, number: int) -> None:
        """New data for the pipeline: one record in one file."""
        record = {"value": number, "ts": "2026-01-01T00:00:00"}
        hidden = self.folder / f".{number}"
        hidden.write_text(json.dumps(record) + "\n")
        hidden.rename(self.folder / "input" / f"{number:06}.ndjson")

    def has_committed(self, records: int) -> bool:
        """Whether the pipeline's sink has so many records."""
        file = self.folder / "out.db"
        if not file.exists():
            return False
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as table:
            try:
                (count,) = table.execute("SELECT count(*) FROM t").fetchone()
            except sqlite3.OperationalError:
                # It is being made, or written.
                return False
        return int(count) >= records

    def offer_plain(self, number: int) -> None:
        """Something new for the plain jobs."""
        (self.folder / "plain" / "input" / f"{number:06}").touch()

    def plain_has_committed(self, number: int) -> bool:
        """Whether the plain jobs are through with it."""
        return (self.folder / "plain" / "committed" / f"{number:06}").exists()


def settings(*, warm: bool) -> str:
    """The shipped ``dagster.yaml``, for runs in new processes or in a warm worker."""
    return (SAMPLES / "dagster.yaml").read_text() + (_LAUNCHER if warm else "")


def seconds_until(is_so: Callable[[], bool], what: str) -> float:
    """How long it takes until something is so.

    Raises:
        ServiceFailed: Longer than anybody would wait.
    """
    begun = time.perf_counter()
    while not is_so():
        if time.perf_counter() - begun > _PATIENCE:
            raise ServiceFailed("dagster_dev", f"waited {_PATIENCE:.0f} s for {what}")
        time.sleep(0.05)
    return time.perf_counter() - begun


def copy_home(source: Path, target: Path) -> None:
    """Copy an instance that nobody has open."""
    shutil.copytree(source, target, dirs_exist_ok=True)

"""`make ui`, as somebody who has just cloned the repository uses it: look, launch, run a loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.clickstream.answer import SINKS, Answer
from examples.ui.stage import Stage
from infra.ports import free_port
from tests.services.dagster_client import DagsterClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
LONG = 300.0


@dataclass(frozen=True)
class Demo:
    stage: Stage
    dagster: DagsterClient

    def start_loop(self, *arguments: str) -> subprocess.Popen[str]:
        """A `laminar run` of the demo's first pipeline, beside Dagster."""
        program = [sys.executable, "-c", "from laminar_dagster.cli.main import main; main()"]
        return subprocess.Popen(
            [*program, "--project", str(self.stage.project), "run", "clickstream", *arguments],
            env={**self.stage.environment(), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def key(self, epoch: int) -> str:
        """The partition of an epoch, once the commit sensor has added it."""
        key = f"{epoch:012d}"
        asset = "clickstream/checkpoint_manifest"
        self.dagster.wait_for(lambda: key in self.dagster.partitions(asset), f"key {key}", LONG)
        return key


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home = tmp_path_factory.mktemp("ui")
    port = free_port()
    command = [sys.executable, "-m", "examples.ui", "--events", "150000", "--no-browser"]
    with open(home / "log", "w") as log:
        program = subprocess.Popen(
            [*command, "--port", str(port), "--home", str(home / "stage")],
            cwd=ROOT,
            env=dict(os.environ),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    client = DagsterClient(f"http://127.0.0.1:{port}")
    try:

        def is_up() -> bool:
            assert program.poll() is None, (home / "log").read_text()
            try:
                return client.failed_locations() == {}
            except OSError:
                return False

        client.wait_for(is_up, "dagster dev", LONG)
        yield Demo(Stage(home / "stage"), client)
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait(120)


def test_epochs_of_both_pipelines_have_run(demo: Demo) -> None:
    for pipeline, epochs in (("clickstream", 4), ("page_speed", 3)):
        runs = demo.dagster.runs(job=f"{pipeline}_epoch_and_commit", statuses=["SUCCESS"])
        assert [run.tags["laminar/epoch"] for run in reversed(runs)] == [
            str(number) for number in range(1, epochs + 1)
        ]
        keys = [f"{number:012d}" for number in range(1, epochs + 1)]
        found = demo.dagster.materializations(f"{pipeline}/checkpoint_manifest", keys)
        assert len(found) == epochs


def test_runs_from_the_ui_share_a_warm_worker(demo: Demo) -> None:
    workers = set()
    for epoch in (5, 6):
        run = demo.dagster.launch("clickstream_epoch_and_commit", partition=demo.key(epoch))
        workers.add(demo.dagster.wait(run, "SUCCESS", within=LONG).tags["laminar/worker"])
    assert len(workers) == 1
    assert workers.pop().isdecimal()


def test_a_launch_during_a_loop_and_the_loop_commit_every_record_once(demo: Demo) -> None:
    run = demo.dagster.launch("clickstream_epoch_and_commit", partition=demo.key(7))
    loop = demo.start_loop("--json")
    told, complaints = loop.communicate(timeout=LONG)
    document: dict[str, Any] = json.loads(told)
    ended = demo.dagster.wait(run, within=LONG)
    if loop.returncode:
        # One of the two has won each epoch; the other says so.
        assert document["error"]["kind"] in ("epoch_taken", "fenced_out"), complaints
    if ended.status != "SUCCESS":
        assert ended.tags["laminar/error_kind"] in ("epoch_taken", "fenced_out")
    last = demo.start_loop()
    _, complaints = last.communicate(timeout=LONG)
    assert last.returncode == 0, complaints
    answer = Answer(demo.stage.project / ".laminar" / "clickstream" / "input")
    output = demo.stage.project / ".laminar" / "clickstream" / "output"
    for sink in SINKS:
        compared = answer.compare(output, sink)
        assert compared.is_equal, compared.examples

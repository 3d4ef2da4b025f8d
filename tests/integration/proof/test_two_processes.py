"""Two processes run the same pipeline at once: one wins each epoch, nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.meeting import those_that_met
from tests.integration.proof.processes import start
from tests.integration.proof.published import check_everything
from tests.integration.proof.stream import Layout, write_input, write_pipeline
from tests.integration.proof.worker import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("two processes, one pipeline"),
]


def test_one_wins_each_epoch(tmp_path: Path, spark_connect: SparkConnectEndpoint) -> None:
    write_pipeline(tmp_path, Layout(max_records=90))
    write_input(tmp_path, 240)
    job = Job(tmp_path, spark_connect.environment(), rival=tmp_path / "meetings")
    workers = [start(job), start(job)]
    for worker in workers:
        worker.must_finish()
    manifests = check_everything(tmp_path, CheckpointStore(LocalStore(tmp_path / "state")))
    assert len(manifests) == 3
    attempts = list((tmp_path / "state" / "checkpoints").glob("*/attempt.json"))
    assert len(attempts) > len(manifests), "they never were at the same epoch"
    assert those_that_met(tmp_path / "meetings"), "they never met"
    assert "belongs to attempt" in workers[0].log.read_text()

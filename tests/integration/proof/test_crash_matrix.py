"""Killed anywhere, a pipeline's sinks hold every record exactly once.

A worker is killed with SIGKILL at one place; another process goes on from what is there. Then both
sinks equal DuckDB's answer over the whole input, the ledgers are at the newest epoch without a gap,
every committed checkpoint verifies, and the accounting adds up to the input.

Before and after every step, inside every kind of sink, on either store, and twice in a row is
proved without Spark: `sinks/test_kills.py`, `sinks/test_random_faults.py`. Usually this runs what
needs Spark: deaths while it computes, of a driver, an executor or both, and one at each boundary of
the protocol, behind which another process goes on from state that Spark wrote. The long lane
repeats the rest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from infra.s3 import S3Endpoint
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.kill_points import (
    EVERY_BOUNDARY,
    EVERY_STEP,
    INSIDE_COMPUTE,
    INSIDE_SINKS,
    AtSink,
    AtStep,
    AtWrite,
    KillPoint,
)
from tests.integration.proof.processes import start
from tests.integration.proof.published import check_everything
from tests.integration.proof.stream import Layout, write_input, write_pipeline
from tests.integration.proof.worker import NAMED_ERROR, Job, open_pipeline
from tests.services.proofs import with_long_lane

pytestmark = [pytest.mark.slow, pytest.mark.service("spark_connect"), pytest.mark.proof("crashes")]

_CLICKS = 240


@pytest.fixture(scope="module")
def first_epoch(warm_spark: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose first epoch of three is finished: there is state."""
    root = tmp_path_factory.mktemp("first_epoch")
    write_pipeline(root, Layout(max_records=90))
    write_input(root, _CLICKS)
    start(Job(root, warm_spark, epochs=1)).must_finish()
    return root


_LOCALLY = with_long_lane(
    (*EVERY_BOUNDARY, *INSIDE_COMPUTE),
    (*(point for point in EVERY_STEP if point not in EVERY_BOUNDARY), *INSIDE_SINKS),
)


@pytest.mark.parametrize("point", _LOCALLY, ids=str)
def test_local_disk_second_epoch(
    first_epoch: Path, tmp_path: Path, warm_spark: dict[str, str], point: KillPoint
) -> None:
    root = _copy(first_epoch, tmp_path)
    start(Job(root, warm_spark, kill=(2, point))).must_be_killed()
    start(Job(root, warm_spark)).must_finish()
    assert len(check_everything(root, CheckpointStore(LocalStore(root / "state")))) == 3


# The driver and its executor die while they write to S3; the driver dies and its executor goes on
# writing there; another process commits from what Spark left there.
_USUAL_ON_S3: tuple[KillPoint, ...] = (
    AtWrite("after", 1, "state", "/operators/"),
    AtWrite("after", 1, "staged", "/staged/", orphaned=True),
    AtStep("after", "write_manifest"),
)
_ON_S3 = with_long_lane(
    _USUAL_ON_S3,
    (*(p for p in INSIDE_COMPUTE if p not in _USUAL_ON_S3), AtStep("after", "compute")),
)


@pytest.mark.service("s3")
@pytest.mark.parametrize("point", _ON_S3, ids=str)
def test_s3_first_epoch(
    tmp_path: Path,
    warm_spark: dict[str, str],
    s3_service: S3Endpoint,
    s3_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    point: KillPoint,
) -> None:
    write_pipeline(tmp_path, Layout(store=f"s3://{s3_bucket}/shop", max_records=150))
    write_input(tmp_path, _CLICKS)
    environment = {**warm_spark, **s3_service.environment()}
    start(Job(tmp_path, environment, kill=(1, point))).must_be_killed()
    start(Job(tmp_path, environment)).must_finish()
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    assert len(check_everything(tmp_path, open_pipeline(tmp_path).checkpoints)) == 2


_WHILE_COMPUTING: tuple[tuple[KillPoint, KillPoint], ...] = (
    (AtStep("after", "plan"), AtWrite("after", 1, "state", "/operators/")),
    (AtWrite("after", 1, "staged", "/staged/"), AtStep("after", "compute")),
)
_WITHOUT_COMPUTING: tuple[tuple[KillPoint, KillPoint], ...] = (
    (AtStep("after", "compute"), AtStep("after", "prepare")),
    (AtStep("after", "prepare"), AtStep("after", "write_manifest")),
    (AtStep("after", "write_manifest"), AtSink("after", "minutes")),
    (AtSink("after", "minutes"), AtStep("before", "commit_sinks")),
    (AtSink("after", "lake"), AtSink("inside", "minutes")),
    (AtSink("inside", "lake"), AtSink("inside", "lake")),
    (AtSink("inside", "minutes"), AtStep("before", "move_latest")),
    (AtStep("after", "commit_sinks"), AtStep("after", "move_latest")),
)


@pytest.mark.parametrize(
    "points",
    with_long_lane(_WHILE_COMPUTING, _WITHOUT_COMPUTING),
    ids=lambda pair: "-then-".join(map(str, pair)),
)
def test_killed_again_while_recovering(
    first_epoch: Path,
    tmp_path: Path,
    warm_spark: dict[str, str],
    points: tuple[KillPoint, KillPoint],
) -> None:
    root = _copy(first_epoch, tmp_path)
    for point in points:
        shutil.rmtree(root / "hits", ignore_errors=True)
        start(Job(root, warm_spark, kill=(2, point))).must_be_killed()
    start(Job(root, warm_spark)).must_finish()
    assert len(check_everything(root, CheckpointStore(LocalStore(root / "state")))) == 3


@pytest.mark.parametrize("kind", ["operators", "staged"])
def test_an_executor_dies_and_its_driver_lives(
    first_epoch: Path, tmp_path: Path, warm_spark: dict[str, str], kind: str
) -> None:
    root = _copy(first_epoch, tmp_path)
    point = AtWrite("after", 1, kind, f"/{kind}/", alone=True)
    worker = start(Job(root, warm_spark, kill=(2, point)))
    assert worker.wait() == NAMED_ERROR
    assert json.loads((root / "error.json").read_text())["kind"] == "compute_failed"
    start(Job(root, warm_spark)).must_finish()
    assert len(check_everything(root, CheckpointStore(LocalStore(root / "state")))) == 3


_COLD = with_long_lane(
    [AtWrite("after", 1, "staged", "/staged/", with_group=True)],
    [AtStep("before", "compute"), INSIDE_SINKS[0]],
)


@pytest.mark.parametrize("point", _COLD, ids=str)
def test_local_spark_of_its_own(tmp_path: Path, point: KillPoint) -> None:
    """The default set-up: driver, JVM and executors are one process group."""
    write_pipeline(tmp_path, Layout(max_records=150))
    write_input(tmp_path, _CLICKS)
    start(Job(tmp_path, kill=(1, point))).must_be_killed()
    start(Job(tmp_path)).must_finish()
    assert len(check_everything(tmp_path, CheckpointStore(LocalStore(tmp_path / "state")))) == 2


def _copy(template: Path, into: Path) -> Path:
    root = into / "project"
    shutil.copytree(template, root)
    return root

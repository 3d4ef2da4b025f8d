"""`laminar run` with a home of Dagster: its epochs are runs, beside a real `dagster dev`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import FileCodePointer

from infra.load import Deadline
from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.core.errors import EpochTaken, FencedOut, ObjectExists
from tests.integration.cli.test_console_script import SCRIPT, environment
from tests.integration.dagster.conftest import PASSWORD, serve
from tests.integration.dagster.pipelines_project import SECRET_VARIABLE, Shop
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_records import ENDED, Run

pytestmark = [pytest.mark.service("spark_connect"), pytest.mark.service("dagster_dev")]

JOB = "clickstream_epoch_and_commit"
FENCED = {each.kind for each in (EpochTaken, FencedOut, ObjectExists)}


@dataclass(frozen=True)
class Stand:
    """A project, the server that shows it, and the command on it."""

    shop: Shop
    dagster: DagsterClient
    instance: dg.DagsterInstance
    spark: SparkConnectEndpoint
    environment: dict[str, str]

    def start(self, *args: str) -> subprocess.Popen[str]:
        """`laminar run`, in a process of its own."""
        return subprocess.Popen(
            [SCRIPT, "run", "clickstream", *args],
            cwd=self.shop.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, "SPARK_REMOTE": self.spark.session_url(uuid.uuid4())},
        )

    def run(self, *args: str, exit_code: int = 0) -> dict[str, Any]:
        """`laminar run --json` to its end, which says nothing but its document."""
        process = self.start("--json", *args)
        told, error = self.end(process)
        assert (process.returncode, error) == (exit_code, ""), f"{told}\n{error}"
        document: dict[str, Any] = json.loads(told)
        return document

    def end(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """What a process has said when it has ended; it does not outlive the test."""
        with process:
            try:
                return process.communicate(timeout=200)
            finally:
                process.kill()

    def runs(self, epoch: int | None = None) -> list[Run]:
        """The runs that loops have made, the newest first."""
        tags = {} if epoch is None else {"laminar/epoch": str(epoch)}
        return [run for run in self.dagster.runs(job=JOB, tags=tags) if not run.parent_run_id]


@pytest.fixture(scope="module")
def stand(
    tmp_path_factory: pytest.TempPathFactory, spark_connect: SparkConnectEndpoint
) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("resident")
    shop = Shop(folder / "project")
    shop.lay_out()
    with serve(shop, spark_connect) as server:
        endpoint = server.start(folder / "dagster")
        more = {"DAGSTER_HOME": str(endpoint.home), SECRET_VARIABLE: PASSWORD}
        with dg.DagsterInstance.from_config(str(endpoint.home)) as instance:
            own = environment(**spark_connect.environment(), **more)
            yield Stand(shop, endpoint.client, instance, spark_connect, own)


@pytest.fixture(scope="module")
def first(stand: Stand) -> dict[str, Any]:
    """The first epochs."""
    stand.shop.click(1_200)
    return stand.run()


def test_epochs_are_runs_with_their_assets(stand: Stand, first: dict[str, Any]) -> None:
    stand.shop.check()
    runs = stand.runs()
    assert len(runs) == first["epochs_done"] > 1
    host = os.uname().nodename
    for epoch, run in enumerate(reversed(runs), start=1):
        assert run.status == "SUCCESS"
        assert run.partition == f"{epoch:012d}"
        assert run.tags["laminar/pipeline"] == "clickstream"
        assert run.tags["laminar/epoch"] == str(epoch)
        assert run.tags["laminar/resident"].startswith(f"{host}:")
    for asset in ("epoch_plan", "page_minutes_staged", "purchases_staged", "state_snapshot"):
        found = stand.dagster.materializations(f"clickstream/{asset}")
        assert [each.run_id for each in found] == [run.run_id for run in runs]
    newest = stand.dagster.materializations("clickstream/checkpoint_manifest")[0]
    assert newest.metadata["published"] == "by this run"
    assert newest.metadata["records_read"] == first["epochs"][-1]["counts"]["read"]
    checks = stand.dagster.check_executions("clickstream/purchases_staged", "contract")
    assert [each.run_id for each in checks] == [run.run_id for run in runs]
    assert {each.status for each in checks} == {"SUCCEEDED"}


def test_a_run_of_the_loop_is_executed_again_from_the_ui(
    stand: Stand, first: dict[str, Any]
) -> None:
    run = stand.runs()[0]
    again = stand.dagster.reexecute(run.run_id)
    ended = stand.dagster.wait(again, "SUCCESS", within=200)
    assert (ended.parent_run_id, ended.partition) == (run.run_id, run.partition)
    newest = stand.dagster.materializations("clickstream/epoch_plan", [run.partition or ""])[0]
    assert (newest.run_id, newest.metadata["rerun"]) == (again, "identical")
    stand.shop.check()
    # The webserver has made the second one, and finds the code of both at the same place.
    assert code_of(stand, run.run_id) == code_of(stand, again)


def test_an_error_is_the_same_as_without_dagster(stand: Stand, first: dict[str, Any]) -> None:
    stand.shop.buy(700)
    stand.shop.agree(most=1)
    try:
        alone = stand.run("--no-dagster", exit_code=1)
        before = len(stand.runs())
        told = stand.run(exit_code=1)
    finally:
        stand.shop.agree()
    assert alone["error"]["kind"] == "gate_failed"
    assert told["error"] == alone["error"]
    failed, *rest = stand.runs()
    assert len(rest) == before
    assert (failed.status, failed.tags["laminar/error_kind"]) == ("FAILURE", "gate_failed")
    assert failed.partition
    check = stand.dagster.check_executions("clickstream/purchases_staged", "contract")[0]
    assert (check.run_id, check.status, check.severity) == (failed.run_id, "FAILED", "ERROR")
    assert stand.run()["epochs"][0]["epoch"] == int(failed.partition)
    stand.shop.check()


def test_a_loop_that_is_killed_leaves_no_run_without_an_end(
    stand: Stand, first: dict[str, Any]
) -> None:
    epoch = len(stand.shop.committed()) + 1
    stand.shop.click(1_000)
    with stand.start("--forever") as process:
        try:
            run_id = wait_for_compute(stand, epoch)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    # The sensor ends it: the daemon of `dagster dev` runs on this machine.
    dead = stand.dagster.wait(run_id, "FAILURE", within=60)
    assert dead.tags["laminar/error_kind"] == "process_lost"
    assert f"(pid {process.pid}) is gone" in stand.dagster.event_log(run_id)
    stand.run()
    assert [run.status for run in stand.runs(epoch)] == ["SUCCESS", "FAILURE"]
    stand.shop.check()


def test_two_loops_share_the_epochs(stand: Stand, first: dict[str, Any]) -> None:
    done = len(stand.shop.committed())
    stand.shop.click(4_000)
    loops = [stand.start("--json"), stand.start("--json")]
    ended = [stand.end(loop) for loop in loops]
    codes = [loop.returncode for loop in loops]
    assert set(codes) <= {0, 5}, ended
    assert 0 in codes, ended
    assert all(error == "" for _, error in ended)
    stand.shop.check()
    for epoch in range(done + 1, len(stand.shop.committed()) + 1):
        runs = stand.runs(epoch)
        assert {run.status for run in runs} <= ENDED
        assert any(run.status == "SUCCESS" for run in runs)
        failed = [run for run in runs if run.status == "FAILURE"]
        assert {run.tags["laminar/error_kind"] for run in failed} <= FENCED
    # A loop that lost an epoch has left its run behind.
    assert codes.count(5) <= sum(
        run.tags.get("laminar/error_kind") in FENCED for run in stand.runs()
    )


def code_of(stand: Stand, run_id: str) -> tuple[str, ...]:
    """Where a run says that its code is; each start of `dagster dev` has a socket of its own."""
    run = stand.instance.get_run_by_id(run_id)
    assert run and run.job_code_origin and run.remote_job_origin
    code, remote = run.job_code_origin.repository_origin, run.remote_job_origin.repository_origin
    pointer = code.code_pointer
    assert isinstance(pointer, FileCodePointer)
    return (
        code.executable_path,
        pointer.python_file,
        pointer.fn_name,
        str(pointer.working_directory).rstrip("/"),
        remote.code_location_origin.location_name,
        remote.repository_name,
    )


def wait_for_compute(stand: Stand, epoch: int) -> str:
    """Wait until a run computes an epoch; tell which."""
    wanted = dg.RunsFilter(
        job_name=JOB,
        tags={"laminar/epoch": str(epoch)},
        statuses=[dg.DagsterRunStatus.STARTED],
    )
    deadline = Deadline(120)
    while not deadline.is_over:
        for run in stand.instance.get_runs(wanted):
            told = [entry.user_message for entry in stand.instance.all_logs(run.run_id)]
            if f"epoch {epoch}: Compute" in told:
                return run.run_id
        time.sleep(0.1)
    raise AssertionError(f"nobody has computed epoch {epoch}")

"""The harness itself, on a project of two assets: it does what a user does, and cleans up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.errors import ServiceFailed
from infra.load import Deadline
from tests.services import session_guard
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_dev import DagsterDev, DagsterEndpoint
from tests.services.dagster_graphql import GraphQLError
from tests.services.session_guard import members

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.service("dagster_dev")

DEFINITIONS = '''
import time
from pathlib import Path

import dagster as dg

FOLDER = Path(__file__).parent
days = dg.DynamicPartitionsDefinition(name="days")


class Settings(dg.Config):
    factor: int = 1


@dg.asset(
    key_prefix="shop",
    partitions_def=days,
    check_specs=[dg.AssetCheckSpec("is_even", asset=["shop", "orders"])],
)
def orders(context: dg.AssetExecutionContext, config: Settings):
    """What was ordered."""
    context.log.info(f"counting for {context.run.tags.get('shop/reason')}")
    while (FOLDER / "hold").exists():
        time.sleep(0.05)
    if (FOLDER / "break").exists():
        raise ValueError("no orders today")
    count = int(context.partition_key) * config.factor
    schema = dg.TableSchema([dg.TableColumn("id", "bigint"), dg.TableColumn("name", "string")])
    return dg.MaterializeResult(
        metadata={"count": count * 2**40, "share": 0.5, "dagster/column_schema": schema},
        check_results=[
            dg.AssetCheckResult(
                passed=count % 2 == 0,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={"count": count},
            )
        ],
    )


@dg.asset(key_prefix="shop", partitions_def=days, deps=[orders])
def invoices():
    pass


daily = dg.define_asset_job("daily", [orders, invoices], executor_def=dg.in_process_executor)


@dg.sensor(job=daily, minimum_interval_seconds=1)
def on_demand(context: dg.SensorEvaluationContext):
    request = FOLDER / "request"
    if not request.exists():
        return dg.SkipReason("nobody asked")
    return dg.RunRequest(run_key=request.read_text(), partition_key=request.read_text())


defs = dg.Definitions(
    [orders, invoices], jobs=[daily], sensors=[on_demand], executor=dg.in_process_executor
)
'''
WORKSPACE = "load_from: [{python_file: {relative_path: definitions.py, location_name: shop}}]"
# The daemon looks at its queue and its sensors as often as it can.
SETTINGS = """
run_coordinator:
  module: dagster
  class: QueuedRunCoordinator
  config: {dequeue_interval_seconds: 1}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "definitions.py").write_text(DEFINITIONS)
    (folder / "workspace.yaml").write_text(WORKSPACE)
    return folder


@pytest.fixture(scope="module")
def server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterEndpoint]:
    with DagsterDev(project, dagster_yaml=SETTINGS) as started:
        yield started.start(tmp_path_factory.mktemp("dagster"))
        leader = started.identity.pid
    assert members(leader) == []


@pytest.fixture(scope="module")
def dagster(server: DagsterEndpoint) -> DagsterClient:
    client = server.client
    for key in ("1", "2", "3", "10", "11"):
        client.add_partition("days", key)
    return client


@pytest.fixture(scope="module")
def backfill(dagster: DagsterClient) -> str:
    """Launched before the first test, because the daemon looks for one every 30 seconds alone."""
    assert dagster.partitions("shop/orders")[3:] == ["10", "11"]
    return dagster.backfill(["shop/orders", "shop/invoices"], ["10", "11"], {"shop/reason": "late"})


@pytest.mark.usefixtures("backfill")
def test_a_run_leaves_what_it_did(dagster: DagsterClient) -> None:
    tags = {"shop/reason": "the test"}
    run_config = {"ops": {"shop__orders": {"config": {"factor": 3}}}}
    run_id = dagster.launch("daily", partition="1", tags=tags, run_config=run_config)
    run = dagster.wait(run_id, "SUCCESS")
    assert (run.job, run.partition, run.parent_run_id) == ("daily", "1", None)
    assert run.tags["shop/reason"] == "the test"
    assert "factor: 3" in run.run_config
    assert [each.run_id for each in dagster.runs(tags=tags)] == [run_id]
    (made,) = dagster.materializations("shop/orders", ["1"])
    assert made.metadata == {
        "count": 3 * 2**40,
        "share": 0.5,
        "dagster/column_schema": {"id": "bigint", "name": "string"},
    }
    (check,) = dagster.check_executions("shop/orders", "is_even")
    assert (check.status, check.severity, check.metadata) == ("FAILED", "WARN", {"count": 3})
    assert "counting for the test" in dagster.event_log(run_id)


def test_a_failed_run_is_reexecuted(dagster: DagsterClient, project: Path) -> None:
    (project / "break").touch()
    failed = dagster.launch("daily", partition="2")
    dagster.wait(failed, "FAILURE")
    (project / "break").unlink()
    assert "ValueError: no orders today" in dagster.event_log(failed)
    with pytest.raises(
        AssertionError, match=r"is FAILURE, not SUCCESS; its events:(?s:.*)no orders"
    ):
        dagster.wait(failed, "SUCCESS")
    again = dagster.wait(dagster.reexecute(failed, "FROM_FAILURE"), "SUCCESS")
    assert (again.parent_run_id, again.partition) == (failed, "2")


def test_a_run_is_terminated(dagster: DagsterClient, project: Path) -> None:
    (project / "hold").touch()
    try:
        run_id = dagster.launch("daily", partition="2", tags={"shop/reason": "to be ended"})
        dagster.wait_for(
            lambda: "counting for to be ended" in dagster.event_log(run_id), "the run's step"
        )
        dagster.terminate(run_id)
        dagster.wait(run_id, "CANCELED")
    finally:
        (project / "hold").unlink()


def test_a_sensor_is_switched_on_and_off(dagster: DagsterClient, project: Path) -> None:
    assert not dagster.is_running("on_demand")
    dagster.start("sensor", "on_demand")
    skipped = dagster.wait_for(
        lambda: [each for each in dagster.ticks("on_demand") if each.status == "SKIPPED"], "a tick"
    )
    assert {each.skip_reason for each in skipped} == {"nobody asked"}
    (project / "request").write_text("3")
    by_sensor = {"dagster/sensor_name": "on_demand"}
    (run,) = dagster.wait_for(lambda: dagster.runs(tags=by_sensor), "a run of the sensor")
    assert dagster.wait(run.run_id, "SUCCESS").partition == "3"
    dagster.stop("sensor", "on_demand")
    assert not dagster.is_running("on_demand")


def test_a_backfill_makes_a_run_for_each_partition(dagster: DagsterClient, backfill: str) -> None:
    done = dagster.wait_for_backfill(backfill)
    assert done.status == "COMPLETED_SUCCESS", done.error
    assert sorted((run.partition, run.status) for run in done.runs) == [
        ("10", "SUCCESS"),
        ("11", "SUCCESS"),
    ]
    assert {run.tags["shop/reason"] for run in done.runs} == {"late"}


@pytest.mark.service("chromium")
def test_the_browser_shows_the_page_of_an_asset(
    page: Page, dagster: DagsterClient, tmp_path: Path
) -> None:
    page.goto(f"{dagster.url}/assets/shop/orders?view=overview")
    page.get_by_text("What was ordered.").wait_for()
    assert page.get_by_role("dialog").count() == 0
    picture = page.screenshot(path=tmp_path / "asset.png")
    # Width and height stand in the header of a PNG.
    assert [int.from_bytes(picture[at : at + 4]) for at in (16, 20)] == [1600, 1000]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda client: client.launch("nightly"), "PipelineNotFoundError: .*nightly"),
        (
            lambda client: client.launch("daily", partition="1", run_config={"ops": {"x": {}}}),
            'RunConfigValidationInvalid: .*unexpected config entry "x"',
        ),
        (lambda client: client.run("none"), "RunNotFoundError: .*none"),
        (lambda client: client.query("{ nothing }"), "Cannot query field"),
        (lambda client: client.start("sensor", "smoke"), "SensorNotFoundError"),
    ],
)
def test_what_dagster_refuses_is_an_error(dagster: DagsterClient, ask: object, told: str) -> None:
    assert callable(ask)
    with pytest.raises(GraphQLError, match=told):
        ask(dagster)


def test_code_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text("raise RuntimeError('not today')")
    (tmp_path / "workspace.yaml").write_text(WORKSPACE)
    server = DagsterDev(tmp_path)
    with pytest.raises(ServiceFailed, match=r"cannot be loaded:\nshop: (?s:.*)not today"):
        server.start(tmp_path / "data")


KILLED = """
import os, pathlib, signal, sys, time
from infra.process import spawn
from tests.services.session_guard import members

folder, guard = pathlib.Path(sys.argv[1]), sys.argv[2]
tree = [sys.executable, "-IS", guard, "sh", "-c", "sleep 300 & echo $TMPDIR; sleep 300"]
leader = spawn(tree, log=folder / "log", cwd=folder, environment=os.environ).pid
while len(members(leader)) < 4:
    time.sleep(0.01)
print(leader, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_outlives_a_test_run_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), session_guard.__file__]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    deadline = Deadline(30)
    while members(int(killed.stdout)):
        assert not deadline.is_over
        time.sleep(0.05)
    assert not Path((tmp_path / "log").read_text().strip()).exists()

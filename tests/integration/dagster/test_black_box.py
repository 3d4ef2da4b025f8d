"""Two pipelines in a real `dagster dev`, met from outside alone: GraphQL, and what the sinks hold.

The tests share one server, and each goes on where the last has left the pipelines.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from infra.spark_connect import SparkConnectEndpoint
from tests.integration.dagster.conftest import LONG, PASSWORD, Stand, serve
from tests.integration.dagster.pipelines_project import (
    LITERAL_SECRETS,
    MAX_RECORDS,
    SECRET_VARIABLE,
)
from tests.integration.dagster.shown import all_shown, files_with
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_records import ENDED, Materialization, Run
from tests.services.process_tree import PROCESSES, command_line, descendants

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("dagster_dev", "spark_connect"),
    # A run takes ten seconds, and a minute where others have the machine as well.
    pytest.mark.timeout(900),
]

CLICKSTREAM: Final = (
    "clickstream/epoch_plan",
    "clickstream/page_minutes_staged",
    "clickstream/purchases_staged",
    "clickstream/state_snapshot",
)
LAKE: Final = "clickstream/purchases"
DATA_PASSWORD: Final = "canary-of-data"
URL_WITH_PASSWORD: Final = f"https://ann:{DATA_PASSWORD}@shop.example/checkout"
# Another process was faster; nothing is wrong.
FENCED: Final = {"epoch_taken", "object_exists", "fenced_out", "fenced"}


def runs_of(dagster: DagsterClient, job: str, partition: str) -> list[Run]:
    """The runs of a job for an epoch, the newest first."""
    return dagster.runs(job=job, tags={"dagster/partition": partition})


def commit_of(dagster: DagsterClient, partition: str, pipeline: str = "clickstream") -> Run:
    """Wait for the run with which the commit sensor commits an epoch."""
    runs = dagster.wait_for(
        lambda: runs_of(dagster, f"{pipeline}_commit", partition), "a run of commit", LONG
    )
    return dagster.wait(runs[0].run_id, "SUCCESS", within=LONG)


@contextmanager
def switched_on(dagster: DagsterClient, *sensors: str) -> Iterator[None]:
    for sensor in sensors:
        dagster.start("sensor", sensor)
    try:
        yield
    finally:
        for sensor in sensors:
            dagster.stop("sensor", sensor)


def reload(dagster: DagsterClient) -> None:
    """Load the code anew, as with the button in the UI."""
    dagster.expect(
        "WorkspaceLocationEntry",
        "mutation ($name: String!) { reloadRepositoryLocation(repositoryLocationName: $name)"
        " { __typename ... on Error { message } } }",
        name="laminar",
    )
    assert dagster.wait_for(lambda: dagster.failed_locations() == {}, "the code") is True


def test_both_pipelines_are_loaded(stand: Stand) -> None:
    found = stand.dagster.expect(
        "Repository",
        """query ($of: RepositorySelector!) {
            repositoryOrError(repositorySelector: $of) {
                __typename
                ... on Repository {
                    jobs { name }
                    sensors { name sensorState { status } }
                    schedules { name cronSchedule scheduleState { status } }
                    assetNodes {
                        assetKey { path } groupName isMaterializable
                        dependencyKeys { path } dependedByKeys { path }
                    }
                }
            }
        }""",
        of=stand.dagster.repository,
    )
    jobs = {job["name"] for job in found["jobs"] if not job["name"].startswith("__")}
    kinds = ("epoch", "commit", "epoch_and_commit", "replay", "verify", "recover", "prune")
    assert jobs == {f"{name}_{kind}" for name in ("alerts", "clickstream") for kind in kinds}
    assert {each["name"]: each["sensorState"]["status"] for each in found["sensors"]} == {
        "alerts_commit_sensor": "RUNNING",
        "alerts_epoch_sensor": "STOPPED",
        "clickstream_commit_sensor": "RUNNING",
        "clickstream_epoch_sensor": "STOPPED",
    }
    assert {each["name"] for each in found["schedules"]} == {
        "alerts_prune_schedule",
        "clickstream_prune_schedule",
    }
    # The table is one asset: written by the one, read by the other.
    assets = {"/".join(each["assetKey"]["path"]): each for each in found["assetNodes"]}
    lake = assets[LAKE]
    assert (lake["groupName"], lake["isMaterializable"]) == ("clickstream", True)
    assert {"/".join(key["path"]) for key in lake["dependencyKeys"]} == {
        "clickstream/checkpoint_manifest",
        "clickstream/purchases_staged",
    }
    assert {"/".join(key["path"]) for key in lake["dependedByKeys"]} == {
        "alerts/epoch_plan",
        "alerts/large_purchases_staged",
    }
    assert not assets["clickstream/clicks_source"]["isMaterializable"]


def test_an_epoch_that_is_launched_by_hand_is_committed_by_the_sensor(stand: Stand) -> None:
    stand.shop.click(MAX_RECORDS - 200)
    key = stand.next_key()
    assert key == "000000000001"
    computed = stand.dagster.launch("clickstream_epoch", partition=key)
    run = stand.dagster.wait(computed, "SUCCESS", within=LONG)
    assert (run.tags["laminar/pipeline"], run.tags["laminar/epoch"]) == ("clickstream", "1")
    committed = commit_of(stand.dagster, key)
    assert committed.tags["dagster/run_key"] == "clickstream:1:commit:1"
    stand.shop.check()
    (made,) = stand.dagster.materializations("clickstream/checkpoint_manifest", [key])
    assert made.run_id == committed.run_id
    assert made.metadata["records_read"] == stand.shop.clicks
    assert made.metadata["published"] == "by this run"
    (made,) = stand.dagster.materializations("clickstream/page_minutes_staged", [key])
    assert made.metadata["dagster/column_schema"]["clicks"] == "int64"


def test_sensors_take_data_through_both_pipelines(stand: Stand) -> None:
    first = stand.next_key()
    second = f"{int(first) + 1:012d}"
    stand.shop.click(MAX_RECORDS + 500)
    with switched_on(stand.dagster, "clickstream_epoch_sensor"):
        commit_of(stand.dagster, second)
    stand.shop.check()
    order = [
        (run.job, run.partition)
        for run in reversed(stand.dagster.runs(statuses=["SUCCESS"]))
        if run.partition in (first, second) and run.job.startswith("clickstream_")
    ]
    assert order == [
        (job, partition)
        for partition in (first, second)
        for job in ("clickstream_epoch", "clickstream_commit")
    ]
    with switched_on(stand.dagster, "alerts_epoch_sensor"):
        commit_of(stand.dagster, stand.next_key("alerts"), "alerts")
    stand.shop.check(alerts=True)


def test_committed_epochs_are_run_again_and_come_out_identical(stand: Stand) -> None:
    dagster, keys = stand.dagster, stand.shop.committed()[:3]
    before = stand.shop.published()
    # The daemon looks for backfills twice a minute, so this one is launched first.
    backfill = dagster.backfill(CLICKSTREAM, keys)
    alone = dagster.wait(dagster.launch("clickstream_epoch", partition=keys[0]), "SUCCESS")
    done = dagster.wait_for_backfill(backfill, LONG)
    assert done.status == "COMPLETED_SUCCESS", done.error
    (of_range,) = done.runs
    assert of_range.tags["dagster/asset_partition_range_start"] == keys[0]
    assert of_range.tags["dagster/asset_partition_range_end"] == keys[-1]
    for asset in CLICKSTREAM:
        made = dagster.materializations(asset, keys)
        again = {(each.run_id, each.partition): each.metadata.get("rerun") for each in made}
        assert again[alone.run_id, keys[0]] == "identical"
        assert {key: again[of_range.run_id, key] for key in keys} == dict.fromkeys(
            keys, "identical"
        )
    log = dagster.event_log(of_range.run_id)
    places = [log.index(f"epoch {int(key)} is committed: running") for key in keys]
    assert places == sorted(places)
    assert stand.shop.published() == before
    stand.shop.check()


def test_a_broken_contract_stops_the_epoch_until_it_is_mended(stand: Stand) -> None:
    dagster, key = stand.dagster, stand.next_key()
    stand.shop.click(600)
    stand.shop.buy(5_000, page=URL_WITH_PASSWORD)
    with switched_on(dagster, "clickstream_epoch_sensor"):
        runs = dagster.wait_for(lambda: runs_of(dagster, "clickstream_epoch", key), "a run", LONG)
        failed = dagster.wait(runs[0].run_id, "FAILURE", within=LONG)
        assert failed.tags["laminar/error_kind"] == "gate_failed"
        check = dagster.check_executions("clickstream/purchases_staged", "contract")[0]
        assert (check.status, check.severity) == ("FAILED", "ERROR")
        assert check.description and "less_than_or_equal_to(1000)" in check.description
        assert "str_startswith('/')" in check.description
        assert "https://***@shop.example/checkout" in check.description
        stuck = f"epoch {int(key)} failed with gate_failed, which does not pass by itself"
        dagster.wait_for(
            lambda: stuck in (dagster.ticks("clickstream_epoch_sensor")[0].skip_reason or ""),
            "the sensor's reason",
        )
        # The same again is no better, and no attempt is published.
        again = dagster.wait(dagster.reexecute(failed.run_id), "FAILURE", within=LONG)
        assert (again.parent_run_id, again.partition) == (failed.run_id, key)
        assert again.tags["laminar/error_kind"] == "gate_failed"
        assert key not in stand.shop.committed()
        stand.shop.agree(most=10_000, start="")
        reload(dagster)
        commit_of(dagster, key)
    passed = dagster.check_executions("clickstream/purchases_staged", "contract")[0]
    assert passed.status == "SUCCEEDED"
    stand.shop.check()


def python_workers(spark: SparkConnectEndpoint) -> list[int]:
    """The Python processes below a Spark Connect server."""
    setting = f"spark.connect.grpc.binding.port={spark.port}"
    every = (int(process.name) for process in PROCESSES.glob("[0-9]*"))
    servers = [pid for pid in every if setting in command_line(pid)]
    return sorted(descendants(*servers))


def test_a_terminated_epoch_leaves_nothing_behind(
    stand: Stand, stand_spark: SparkConnectEndpoint
) -> None:
    dagster, key = stand.dagster, stand.next_key()
    stand.shop.click(600)
    held: set[int] = set()

    def hangs() -> bool:
        """Hold the workers of Spark, so that the epoch is computed for as long as it takes."""
        log = dagster.event_log(run_id)
        if f"epoch {int(key)}: Compute" not in log:
            return False
        for pid in python_workers(stand_spark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                held.add(pid)
        return bool(held)

    run_id = dagster.launch("clickstream_epoch_and_commit", partition=key)
    try:
        dagster.wait_for(hangs, "the epoch to be computed", LONG)
        assert "Prepare" not in dagster.event_log(run_id)
        dagster.terminate(run_id)
        dagster.wait(run_id, "CANCELED", within=LONG)
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    attempts = stand.shop.attempts()
    assert len(attempts) > len(stand.shop.committed())
    assert key not in stand.shop.committed()

    again = dagster.launch("clickstream_epoch_and_commit", partition=key)
    dagster.wait(again, "SUCCESS", within=LONG)
    assert stand.shop.published()[key] not in attempts
    stand.shop.check()


def test_two_daemons_commit_every_epoch_once(
    stand: Stand, stand_spark: SparkConnectEndpoint, tmp_path: Path
) -> None:
    done = len(stand.shop.committed())
    keys = [f"{epoch:012d}" for epoch in (done + 1, done + 2)]
    with serve(stand.shop, stand_spark) as server:
        rival = server.start(tmp_path).client
        stand.shop.click(MAX_RECORDS + 500)
        both = (stand.dagster, rival)
        with (
            switched_on(stand.dagster, "clickstream_epoch_sensor"),
            switched_on(rival, "clickstream_epoch_sensor"),
        ):
            stand.dagster.wait_for(lambda: keys[1] in stand.shop.committed(), "both epochs", LONG)
        runs = [run for client in both for run in _ended(client) if run.partition in keys]
        # Also of epochs that the other has committed, each knows.
        for client in both:
            made = _told_of(client, keys[1])
            assert made.metadata["checkpoint"] == stand.shop.published()[keys[1]]
    computing = [run for run in runs if run.job == "clickstream_epoch"]
    # It was a race: at some epoch there were both.
    assert len(computing) > len(keys)
    assert {run.status for run in runs} <= {"SUCCESS", "FAILURE"}
    lost = [run.tags.get("laminar/error_kind") for run in runs if run.status == "FAILURE"]
    assert set(lost) <= FENCED, lost
    stand.shop.check()


def test_no_secret_is_shown_or_stored(stand: Stand, stand_spark: SparkConnectEndpoint) -> None:
    dagster, shop = stand.dagster, stand.shop
    shop.add_archive()
    try:
        reload(dagster)
        failing = dagster.launch("archive_epoch_and_commit", partition=stand.next_key("archive"))
        failed = dagster.wait(failing, "FAILURE", within=LONG)
        shown = all_shown(dagster)
    finally:
        shop.remove_archive()
        reload(dagster)
    assert failed.tags["laminar/error_kind"] == "sink_unavailable"
    # What is searched does hold what these secrets belong to.
    assert "Error performing GET ***/archive/visits" in shown
    assert "https://***@shop.example/checkout" in shown
    assert f"${{{SECRET_VARIABLE}}}" in shown
    assert "spark.sql.catalog.lake.password" in shown
    kept = (stand.server.home, stand.server.log)
    stores = shop.root / ".laminar"
    assert any(files_with(failed.run_id, *kept))
    assert any(files_with("page_minutes", stores))

    for secret in (PASSWORD, *LITERAL_SECRETS, stand_spark.token):
        assert secret not in shown
        assert [*files_with(secret, *kept, stores)] == []
    # This one was part of the data: a pipeline keeps it, and nobody tells it.
    assert DATA_PASSWORD not in shown
    assert [*files_with(DATA_PASSWORD, *kept)] == []


def _told_of(client: DagsterClient, key: str) -> Materialization:
    """Wait until Dagster knows that an epoch is committed."""
    asset = "clickstream/checkpoint_manifest"
    what = f"epoch {key} to be told"
    return client.wait_for(lambda: client.materializations(asset, [key]), what, LONG)[0]


def _ended(client: DagsterClient) -> list[Run]:
    """All runs, once none is under way."""

    def all_ended() -> list[Run] | None:
        runs = client.runs()
        return runs if all(run.status in ENDED for run in runs) else None

    return client.wait_for(all_ended, "the end of all runs", LONG)

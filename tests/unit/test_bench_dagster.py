"""What the benchmarks of Dagster are built on: copies of an epoch, and a project that loads."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import dagster as dg
import pytest

from bench.__main__ import main
from bench.dagster_copies import copy_epoch, run_ids_of
from bench.dagster_project import DagsterProject, settings
from laminar_dagster.orchestration.pipeline_defs import build_project_defs
from tests.unit.orchestration.conditions import Stage
from tests.unit.orchestration.instance_rows import rows


@pytest.mark.slow
def test_copies_of_an_epoch_are_epochs_to_dagster(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        stage = Stage(tmp_path, instance)
        stage.arrive(1)
        assert stage.run("epoch_and_commit", [1]).success
        before = rows(instance)
    copy_epoch(home, "000000000001", [*run_ids_of(home)], 5)
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        stage = Stage(tmp_path, instance)
        assert rows(instance) == {name: 5 * count for name, count in before.items()}
        assert stage.materialized("checkpoint_manifest") == [1, 2, 3, 4, 5]
        wanted = dg.RunsFilter(tags={"dagster/partition": "000000000004"})
        (run,) = instance.get_runs(wanted)
        key = dg.AssetKey(["clicks", "checkpoint_manifest"])
        event = instance.get_latest_data_version_record(key, partition_key="000000000004")
        assert event
        assert (event.run_id, event.partition_key) == (run.run_id, "000000000004")
        told = instance.event_log_storage.get_latest_tags_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, tag_keys=["dagster/data_version"]
        )
        assert set(told) == instance.get_materialized_partitions(key)


def test_the_project_loads_and_tells_what_is_committed(tmp_path: Path) -> None:
    project = DagsterProject.write(tmp_path)
    names = {job.name for job in build_project_defs(project.folder).resolve_all_job_defs()}
    assert {"clicks_epoch", "clicks_commit"} <= names
    assert not project.has_committed(1)
    with sqlite3.connect(tmp_path / "out.db") as table:
        table.execute("CREATE TABLE t AS SELECT 1 AS twice")
    assert project.has_committed(1)
    assert not project.has_committed(2)
    project.offer_plain(7)
    assert not project.plain_has_committed(7)


def test_the_settings_are_the_shipped_ones_and_a_launcher() -> None:
    assert "WarmRunLauncher" not in settings(warm=False).replace("#   class: WarmRunLauncher", "")
    assert settings(warm=True).startswith(settings(warm=False))


def test_the_group_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name in ("dagster-latency", "dagster-idle", "dagster-partitions"):
        assert name in listed

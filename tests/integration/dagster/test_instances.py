"""The shipped ``dagster.yaml`` files: they load, and epochs run, are told of and are pruned."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster._core.scheduler.instigation import TickStatus

from infra.postgres import PostgresEndpoint
from laminar_dagster.orchestration.warm.launcher import WarmRunLauncher
from tests.unit.orchestration.conditions import FILES, Stage
from tests.unit.orchestration.instance_rows import rows, rows_of_runs

HOMES = Path(__file__).parents[3] / "examples" / "dagster_home"
EPOCHS = "laminar_clicks_epochs"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service("postgres"))])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``DAGSTER_HOME`` as the docs tell to make it."""
    folder = tmp_path / "home"
    shutil.copytree(HOMES / request.param, folder)
    if request.param == "postgres":
        service: PostgresEndpoint = request.getfixturevalue("postgres_service")
        variables = {
            **service.environment(),
            "PGDATABASE": str(request.getfixturevalue("postgres_database")),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def stage(tmp_path: Path, instance: dg.DagsterInstance) -> Stage:
    stage = Stage(tmp_path, instance)
    stage.files["pipeline.yml"] = FILES["pipeline.yml"].replace("history: 4", "history: 1")
    return stage


def run_epoch_by_sensors(stage: Stage) -> list[str]:
    """What the daemon does: both sensors, and the runs that they ask for."""
    stage.arrive(*range(1, 9))
    computed = stage.follow(stage.tick("epoch_sensor"))
    assert computed.success
    committed = stage.follow(stage.tick("commit_sensor"))
    assert committed.success
    return [computed.run_id, committed.run_id]


def test_epochs_run_through_the_sensors_and_old_ones_are_forgotten(stage: Stage) -> None:
    first = run_epoch_by_sensors(stage)
    assert stage.newest == 1
    assert stage.world.table.rows == stage.world.log.expected()[: len(stage.world.table.rows)]
    second = run_epoch_by_sensors(stage)
    stage.instance.report_runless_asset_event(
        dg.AssetMaterialization(["clicks", "totals_staged"], partition="000000000001")
    )
    assert stage.materialized("checkpoint_manifest") == [1, 2]
    assert all(rows_of_runs(stage.instance, first).values())
    kept = rows_of_runs(stage.instance, second)

    assert stage.run("prune").success

    assert stage.materialized("checkpoint_manifest") == [2]
    assert stage.materialized("totals_staged") == [2]
    assert "000000000001" not in stage.instance.get_dynamic_partitions(EPOCHS)
    assert set(rows_of_runs(stage.instance, first).values()) == {0}
    assert rows_of_runs(stage.instance, second) == kept
    assert rows(stage.instance)["runs"] == 3


def test_its_settings_are_what_the_comments_say(instance: dg.DagsterInstance) -> None:
    config = instance.get_concurrency_config()
    assert config.pool_config.default_pool_limit == 1
    assert str(config.pool_config.pool_granularity).endswith("RUN")
    coordinator = instance.run_coordinator
    assert isinstance(coordinator, QueuedRunCoordinator)
    assert coordinator.dequeue_interval_seconds == 1
    assert instance.run_monitoring_enabled
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled
    days = instance.get_tick_retention_settings(InstigatorType.SENSOR)
    assert days[TickStatus.SKIPPED] == 1


def test_dagster_tells_of_it_and_of_no_password(home: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "dagster", "instance", "info"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    shown = told.stdout + told.stderr
    assert str(home) in shown
    assert "default_limit: 1" in shown
    if password := os.environ.get("PGPASSWORD"):
        assert "event_log_storage: PostgresEventLogStorage" in shown
        assert password not in shown


def test_the_warm_launcher_is_two_characters_a_line_away(home: Path) -> None:
    file = home / "dagster.yaml"
    lines = file.read_text().splitlines()
    first = lines.index("# run_launcher:")
    last = next(n for n in range(first, len(lines)) if not lines[n].startswith("#"))
    lines[first:last] = [line.removeprefix("# ") for line in lines[first:last]]
    file.write_text("\n".join(lines))
    options = yaml.safe_load(file.read_text())["run_launcher"]["config"]
    assert options.keys() == WarmRunLauncher.config_type().keys()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.run_launcher, WarmRunLauncher)

"""The launcher's options, and what it does where there is no keeper to be had."""

import dataclasses
import sys
import uuid
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.errors import DagsterInvalidConfigError

from laminar_dagster.orchestration.private_api import CodeOrigin, WorkerStatus
from laminar_dagster.orchestration.resident_runs import ResidentProcess
from laminar_dagster.orchestration.warm.folder import KeeperFolder, Record
from laminar_dagster.orchestration.warm.keepers import Keepers, Limits, NotServed
from laminar_dagster.orchestration.warm.launcher import WarmRunLauncher

ORIGIN = CodeOrigin(
    text="code", executable=sys.executable, folder=None, image=None, location="a", is_local=True
)


def instance_with(home: Path, options: dict[str, object]) -> dg.DagsterInstance:
    launcher = {
        "module": "laminar_dagster.orchestration.warm.launcher",
        "class": "WarmRunLauncher",
        "config": options,
    }
    (home / "dagster.yaml").write_text(yaml.safe_dump({"run_launcher": launcher}))
    return dg.DagsterInstance.from_config(str(home))


def launcher_of(instance: dg.DagsterInstance) -> WarmRunLauncher:
    launcher = instance.run_launcher
    assert isinstance(launcher, WarmRunLauncher)
    return launcher


def test_the_options_have_defaults(tmp_path: Path) -> None:
    with instance_with(tmp_path, {}) as instance:
        assert launcher_of(instance)._limits == Limits(idle=1800, start=60, terminate=10)


def test_options_are_read_from_the_environment_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDLE", "7")
    options = {"idle_seconds": {"env": "IDLE"}, "terminate_seconds": 3}
    with instance_with(tmp_path, options) as instance:
        assert launcher_of(instance)._limits == Limits(idle=7, start=60, terminate=3)


@pytest.mark.parametrize("name", ["idle_seconds", "start_seconds", "terminate_seconds"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with (
        instance_with(tmp_path, {name: 0}) as instance,
        pytest.raises(ValueError, match=f"`{name}` of the run launcher must be above 0, not 0"),
    ):
        launcher_of(instance)


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    with (
        instance_with(tmp_path, {"idle_minutes": 1}) as instance,
        pytest.raises(DagsterInvalidConfigError, match="idle_minutes"),
    ):
        launcher_of(instance)


def test_a_run_that_no_worker_has_is_not_well(tmp_path: Path) -> None:
    @dg.job
    def nothing() -> None:
        pass

    with instance_with(tmp_path, {}) as instance:
        run = instance.create_run_for_job(nothing)
        cold = instance.create_run_for_job(nothing, tags={".dagster/grpc_info": "{}"})
        launcher = launcher_of(instance)

        assert launcher.supports_check_run_worker_health
        assert launcher.check_run_worker_health(run).status == WorkerStatus.FAILED
        assert launcher.check_run_worker_health(cold).status == WorkerStatus.RUNNING
        launcher.join()


def keepers(home: Path) -> Keepers:
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        return Keepers.of(instance, Limits(idle=5, start=5, terminate=1))


@pytest.mark.parametrize("executable", ["/bin/false", "/bin/true"])
def test_a_python_that_cannot_be_a_keeper_serves_nothing(tmp_path: Path, executable: str) -> None:
    origin = dataclasses.replace(ORIGIN, executable=executable)
    with pytest.raises(NotServed, match=r"its keeper ended with code \d; see /"):
        keepers(tmp_path).submit("a", origin)


def test_a_folder_that_is_not_private_serves_nothing(tmp_path: Path) -> None:
    (tmp_path / "laminar_warm").mkdir(mode=0o755)
    (tmp_path / "laminar_warm").chmod(0o755)
    with pytest.raises(NotServed, match="not a folder of this user alone"):
        keepers(tmp_path).submit("a", ORIGIN)


@pytest.mark.parametrize("is_canceling", [False, True])
def test_who_launches_next_reports_the_runs_of_a_dead_keeper(
    tmp_path: Path, is_canceling: bool
) -> None:
    @dg.job
    def nothing() -> None:
        pass

    dead = KeeperFolder.of(tmp_path, "dead")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = instance.create_run_for_job(nothing)
        if is_canceling:
            instance.report_run_canceling(run)
        dead.write(Record(keeper_pid=7, worker_pid=8, socket="/no/such", runs=(run.run_id, "gone")))

        with pytest.raises(NotServed):
            keepers(tmp_path).submit("a", dataclasses.replace(ORIGIN, executable="/bin/false"))

        ended = instance.get_run_by_id(run.run_id)
        messages = " ".join(entry.message for entry in instance.all_logs(run.run_id))
    assert ended is not None
    assert ended.status == (
        dg.DagsterRunStatus.CANCELED if is_canceling else dg.DagsterRunStatus.FAILURE
    )
    assert "(pid 7) was killed" in messages
    assert str(dead.log) in messages
    assert dead.record() is None


def test_a_run_of_a_resident_loop_is_as_healthy_as_its_process(tmp_path: Path) -> None:
    this = ResidentProcess.this()
    gone = dataclasses.replace(this, began="long ago")
    with instance_with(tmp_path, {}) as instance:
        launcher = launcher_of(instance)
        for process, status in ((this, WorkerStatus.RUNNING), (gone, WorkerStatus.FAILED)):
            run_id = str(uuid.uuid4())
            run = dg.DagsterRun("job", run_id=run_id, tags=process.tags(run_id))
            assert launcher.check_run_worker_health(run).status == status

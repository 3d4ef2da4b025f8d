"""Epochs as runs of Dagster in one process, on a pipeline in memory and an instance on disk."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from laminar_dagster.core.errors import FencedError, GateFailed, SinkUnavailable
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Violation
from laminar_dagster.orchestration.errors import (
    DagsterUnavailable,
    InvalidDagsterHome,
    RunNotCarriedOut,
)
from laminar_dagster.orchestration.resident import ResidentRunner, open_home
from laminar_dagster.orchestration.resident_runs import (
    CLAIM_TAG,
    RESIDENT_TAG,
    ResidentProcess,
    reap,
)
from tests.unit.orchestration.conditions import Stage

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
WORKSPACE = "load_from: [{python_file: {relative_path: definitions.py, location_name: shop}}]\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return folder


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with open_home(str(home)) as instance:
        yield instance


@pytest.fixture
def stage(tmp_path: Path, instance: dg.DagsterInstance) -> Stage:
    return Stage(tmp_path / "project", instance)


class Loop:
    """A resident runner, and the steps that it was told of."""

    def __init__(self, stage: Stage) -> None:
        self.steps: list[tuple[int, str]] = []
        self.at_step: Callable[[str], None] = lambda _name: None
        self.runner = ResidentRunner(stage.stream, stage.instance, self._step)

    def _step(self, epoch: EpochNumber, name: str) -> None:
        self.steps.append((int(epoch), name))
        self.at_step(name)


@pytest.fixture
def loop(stage: Stage) -> Iterator[Loop]:
    loop = Loop(stage)
    with loop.runner:
        yield loop


def newest_run(stage: Stage) -> dg.DagsterRun:
    return stage.instance.get_runs(limit=1)[0]


def messages(stage: Stage, run: dg.DagsterRun) -> str:
    entries = stage.instance.all_logs(run.run_id)
    return "\n".join(entry.user_message or entry.message for entry in entries)


def test_each_epoch_is_a_run_with_all_that_a_launched_one_has(
    stage: Stage, loop: Loop, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.arrive(1, 2, 3, 4)
    first, second = loop.runner.run(), loop.runner.run()
    assert stage.world.table.rows == stage.world.log.expected()
    assert (first.epoch, second.epoch) == (1, 2)
    taken = ["Plan", "Compute", "Gate", "Prepare", "WriteManifest", "CommitSinks"]
    assert [step.name for step in first.steps][:6] == taken
    assert [name for epoch, name in loop.steps if epoch == 1][:6] == taken
    later, earlier = stage.instance.get_runs()
    assert (earlier.status, later.status) == (SUCCESS, SUCCESS)
    assert earlier.job_name == "clicks_epoch_and_commit"
    assert dict(earlier.run_config) == {}
    expected = {
        "laminar/pipeline": "clicks",
        "laminar/epoch": "1",
        "laminar/resident": f"{os.uname().nodename}:{os.getpid()}",
        "dagster/partition": "000000000001",
        "dagster/code_location": "laminar",
    }
    assert expected.items() <= earlier.tags.items()
    for asset in ("epoch_plan", "totals_staged", "state_snapshot", "checkpoint_manifest"):
        assert stage.materialized(asset) == [1, 2]
    # The log of the run has the steps; the terminal is the loop's.
    assert "epoch 1: CommitSinks" in messages(stage, earlier)
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


def test_a_run_says_where_its_code_is(stage: Stage, loop: Loop) -> None:
    loop.runner.run()
    run = newest_run(stage)
    assert run.job_code_origin and run.remote_job_origin
    pointer = run.job_code_origin.repository_origin.code_pointer
    assert pointer.describe().startswith(str(stage.project / "definitions.py"))
    origin = run.remote_job_origin.repository_origin
    assert origin.repository_name == "__repository__"
    assert origin.code_location_origin.location_name == "laminar"


def test_a_workspace_may_name_the_location_otherwise(stage: Stage) -> None:
    stage.project.mkdir()
    (stage.project / "workspace.yaml").write_text(WORKSPACE)
    with Loop(stage).runner as runner:
        runner.run()
    assert newest_run(stage).tags["dagster/code_location"] == "shop"


def test_an_error_comes_out_as_itself_and_leaves_a_failed_run(stage: Stage, loop: Loop) -> None:
    stage.arrive(1)
    stage.violations = (Violation("contract", "totals", "no such luck"),)
    with pytest.raises(GateFailed, match="no such luck"):
        loop.runner.run()
    run = newest_run(stage)
    assert (run.status, run.tags["laminar/error_kind"]) == (FAILURE, "gate_failed")
    assert stage.world.table.rows == []
    stage.violations = ()
    assert loop.runner.run().epoch == 1
    assert newest_run(stage).status == SUCCESS
    assert stage.world.table.rows == stage.world.log.expected()


def test_a_bug_comes_out_as_itself(stage: Stage, loop: Loop) -> None:
    def stumble(_plan: EpochPlan) -> tuple[Violation, ...]:
        raise ZeroDivisionError("ouch")

    stage.stream.gate = stumble
    with pytest.raises(ZeroDivisionError, match="ouch"):
        loop.runner.run()
    assert newest_run(stage).tags["laminar/error_kind"] == "internal"


def test_it_is_the_loop_that_tries_again(stage: Stage, loop: Loop) -> None:
    stage.arrive(1, 2)
    stage.world.table.is_away = True
    with pytest.raises(SinkUnavailable):
        loop.runner.run()
    failed = newest_run(stage)
    assert (failed.status, failed.tags["laminar/error_kind"]) == (FAILURE, "sink_unavailable")
    retries = dg.DagsterEventType.STEP_UP_FOR_RETRY
    assert not stage.instance.all_logs(failed.run_id, of_type=retries)
    stage.world.table.is_away = False
    report = loop.runner.run()
    # What was computed is not computed again, and yet the run is a whole one.
    assert report.steps[0].name == "CommitSinks"
    assert stage.materialized("epoch_plan") == stage.materialized("checkpoint_manifest") == [1]
    assert stage.world.table.rows == stage.world.log.expected()


def test_one_of_two_wins_and_the_other_says_so(stage: Stage, loop: Loop) -> None:
    rival = stage.runner()

    def overtaken(_plan: EpochPlan) -> tuple[Violation, ...]:
        stage.stream.gate = lambda _plan: ()
        rival.run(EpochNumber(1))
        return ()

    stage.arrive(1, 2)
    stage.stream.gate = overtaken
    with pytest.raises(FencedError) as caught:
        loop.runner.run()
    run = newest_run(stage)
    assert (run.status, run.tags["laminar/error_kind"]) == (FAILURE, caught.value.kind)
    assert loop.runner.run().epoch == 2
    assert stage.world.table.rows == stage.world.log.expected()


def test_an_epoch_that_another_has_finished_meanwhile_is_not_computed_again(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.arrive(1, 2)
    added = stage.instance.add_dynamic_partitions

    def overtaken(name: str, keys: list[str]) -> None:
        added(name, keys)
        stage.runner().run()

    monkeypatch.setattr(stage.instance, "add_dynamic_partitions", overtaken)
    report = loop.runner.run()
    assert report.epoch == 1
    assert not {"Compute", "CommitSinks"} & {step.name for step in report.steps}
    assert newest_run(stage).status == SUCCESS
    assert stage.world.table.rows == stage.world.log.expected()


def test_a_signal_is_the_main_threads_as_ever(stage: Stage, loop: Loop) -> None:
    heard: list[int] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    def interrupt(name: str) -> None:
        if name == "Compute":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        loop.at_step = interrupt
        loop.runner.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert sorted(heard) == [signal.SIGINT, signal.SIGTERM]
    assert newest_run(stage).status == SUCCESS


def test_a_run_that_somebody_cancels_before_it_begins_is_an_error_by_name(
    stage: Stage, loop: Loop
) -> None:
    created = stage.instance.create_run_for_job

    def cancelled(*args: object, **more: object) -> dg.DagsterRun:
        run: dg.DagsterRun = created(*args, **more)  # type: ignore[arg-type]
        stage.instance.report_run_canceled(run)
        found = stage.instance.get_run_by_id(run.run_id)
        assert found
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.instance, "create_run_for_job", cancelled)
        with pytest.raises(RunNotCarriedOut, match="before it began"):
            loop.runner.run()
    assert loop.runner.run().epoch == 1


# --- the storage of Dagster ---------------------------------------------------------------------


def lose(home: Path) -> None:
    """Nothing of the instance can be opened any more."""
    (home / "history").rename(home / "away")
    (home / "history").touch()


def find(home: Path) -> None:
    (home / "history").unlink()
    (home / "away").rename(home / "history")


def test_storage_that_is_away_has_a_name_and_is_waited_for(
    stage: Stage, loop: Loop, home: Path
) -> None:
    stage.arrive(1)
    lose(home)
    with pytest.raises(DagsterUnavailable, match="does not answer") as caught:
        loop.runner.run()
    assert caught.value.exit_code == 75
    find(home)
    assert loop.runner.run().epoch == 1


def test_storage_that_goes_away_in_a_run_leaves_no_run_without_an_end(
    stage: Stage, loop: Loop, home: Path
) -> None:
    stage.arrive(1, 2, 3, 4)

    def go_away(name: str) -> None:
        if name == "Compute":
            lose(home)

    loop.at_step = go_away
    with pytest.raises(DagsterUnavailable):
        loop.runner.run()
    loop.at_step = lambda _name: None
    find(home)
    assert loop.runner.run().epoch == 1
    again, lost = stage.instance.get_runs()
    assert (again.status, lost.status) == (SUCCESS, FAILURE)
    assert "storage was away" in messages(stage, lost)
    assert lost.tags["laminar/error_kind"] == "process_lost"


def test_storage_that_comes_back_at_once_was_away_all_the_same(stage: Stage, loop: Loop) -> None:
    def locked(_plan: EpochPlan) -> tuple[Violation, ...]:
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))

    stage.arrive(1)
    stage.stream.gate = locked
    with pytest.raises(DagsterUnavailable):
        loop.runner.run()
    assert newest_run(stage).status == FAILURE
    stage.stream.gate = lambda _plan: ()
    assert loop.runner.run().epoch == 1


def test_an_epoch_that_was_committed_counts_also_when_nobody_could_record_it(
    stage: Stage, loop: Loop, home: Path
) -> None:
    stage.arrive(1)

    def go_away(name: str) -> None:
        if name == "Collect":
            lose(home)

    loop.at_step = go_away
    report = loop.runner.run()
    assert (report.epoch, report.steps[-1].name) == (1, "Collect")
    find(home)
    loop.at_step = lambda _name: None
    assert loop.runner.run().epoch == 2
    assert [run.status for run in stage.instance.get_runs()] == [SUCCESS, FAILURE]
    # The sensor tells Dagster of what no run could.
    stage.tick("commit_sensor")
    assert stage.materialized("checkpoint_manifest") == [1, 2]


# --- homes that cannot be used ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("home", "told"),
    [
        ("dagster", "it is not a whole path"),
        ("/nowhere/at/all", "there is no such folder"),
        ("/dev/null", "there is no such folder"),
        ("/proc", "cannot be"),
    ],
)
def test_a_home_that_is_none_is_told(home: str, told: str) -> None:
    with pytest.raises(InvalidDagsterHome, match=told) as caught, open_home(home):
        pass
    assert caught.value.exit_code == 2
    assert "--no-dagster" in caught.value.advice()


@pytest.mark.parametrize("text", ["storage: {sqlight: {}}\n", "storage: [\n", "nothing: {}\n"])
def test_settings_that_are_wrong_are_told(home: Path, text: str) -> None:
    (home / "dagster.yaml").write_text(text)
    with (
        pytest.raises(InvalidDagsterHome, match=r"its dagster\.yaml cannot be used"),
        open_home(str(home)),
    ):
        pass


def test_a_home_needs_no_settings(tmp_path: Path) -> None:
    with open_home(str(tmp_path)) as instance:
        assert instance.root_directory == str(tmp_path)


def test_a_database_that_is_away_is_told_without_its_password(home: Path) -> None:
    url = "postgresql+psycopg2://ann:hunter2@127.0.0.1:1/dagster"
    (home / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: '{url}'}}}}\n")
    with pytest.raises(DagsterUnavailable) as caught, open_home(str(home)):
        pass
    assert "hunter2" not in str(caught.value)


# --- runs without a process ---------------------------------------------------------------------


@pytest.fixture
def ended() -> ResidentProcess:
    """A process that was, and is no more."""
    with subprocess.Popen(["sleep", "60"]) as child:
        process = ResidentProcess.numbered(child.pid)
        assert not process.is_gone()
        child.kill()
    assert process.is_gone()
    return process


def test_what_a_dead_process_leaves_to_its_parent_is_no_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = ResidentProcess.numbered(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process.is_gone()


def begun(stage: Stage, process: ResidentProcess, claimed: str = "") -> str:
    """A run of a process, which has only just begun."""
    job = stage.defs.resolve_job_def("clicks_epoch_and_commit")
    run_id = "12345678-0000-4000-8000-000000000000"
    tags = {"laminar/pipeline": "clicks", "laminar/epoch": "1", **process.tags(claimed or run_id)}
    run = stage.instance.create_run_for_job(job, run_id=run_id, tags=tags)
    stage.instance.report_dagster_event(
        dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name), run_id
    )
    return run_id


def status_of(stage: Stage, run_id: str) -> dg.DagsterRunStatus:
    run = stage.instance.get_run_by_id(run_id)
    assert run
    return run.status


def test_a_run_whose_process_is_gone_is_ended(stage: Stage, ended: ResidentProcess) -> None:
    run_id = begun(stage, ended)
    assert status_of(stage, run_id) == dg.DagsterRunStatus.STARTED
    with Loop(stage).runner as runner:
        assert status_of(stage, run_id) == FAILURE
        run = newest_run(stage)
        assert run.tags["laminar/error_kind"] == "process_lost"
        assert f"(pid {ended.pid}) is gone. Nothing is lost" in messages(stage, run)
        assert runner.run().epoch == 1
    assert reap(stage.instance, stage.stream.names) == []


def test_the_sensor_ends_it_as_well(stage: Stage, ended: ResidentProcess) -> None:
    run_id = begun(stage, ended)
    stage.tick("commit_sensor")
    assert status_of(stage, run_id) == FAILURE


def test_no_sensor_asks_for_what_a_loop_is_at(stage: Stage) -> None:
    stage.arrive(1, 2, 3, 4, 5)
    run_id = begun(stage, ResidentProcess.this())
    told = stage.tick("epoch_sensor").skip_reason
    assert told and told.skip_message == f"run {run_id} is at epoch 1"


@pytest.mark.parametrize("what", ["alive", "another machine", "executed again", "another number"])
def test_only_that_is_ended(stage: Stage, ended: ResidentProcess, what: str) -> None:
    this = ResidentProcess.this()
    cases = {
        "alive": (this, ""),
        "another machine": (ResidentProcess("elsewhere", ended.pid, ended.began), ""),
        # Such a run has its parent's tags.
        "executed again": (ended, "87654321-0000-4000-8000-000000000000"),
        # The number is taken by a later process, which is alive.
        "another number": (ResidentProcess(this.host, this.pid, ended.began), ""),
    }
    run_id = begun(stage, *cases[what])
    found = reap(stage.instance, stage.stream.names)
    assert found == ([run_id] if what == "another number" else [])


def test_what_ps_tells_is_as_good(ended: ResidentProcess) -> None:
    from laminar_dagster.orchestration import resident_runs

    if shutil.which("ps") is None:
        pytest.skip("there is no ps")
    own = resident_runs._began_elsewhere(os.getpid())
    assert own and own == resident_runs._began_elsewhere(os.getpid())
    assert resident_runs._began_elsewhere(ended.pid) is None


def test_the_tags_of_a_run_name_its_process(stage: Stage, loop: Loop) -> None:
    loop.runner.run()
    run = newest_run(stage)
    assert ResidentProcess.of(run) == ResidentProcess.this()
    assert {RESIDENT_TAG, CLAIM_TAG} <= run.tags.keys()
    assert not ResidentProcess.this().is_gone()

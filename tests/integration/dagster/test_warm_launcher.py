"""Runs through ``WarmRunLauncher``: real processes, an instance on SQLite, a real code server."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import dagster as dg
import pytest

from laminar_dagster.orchestration.private_api import WorkerStatus
from tests.integration.dagster.shown import files_with
from tests.integration.dagster.warm_project import (
    WarmProject,
    is_alive,
    pids_of,
    wait_until,
    warm_project,
)
from tests.services.process_tree import command_line, environment_of
from tests.services.tracing import traced

SUCCESS = dg.DagsterRunStatus.SUCCESS
FAILURE = dg.DagsterRunStatus.FAILURE
CANCELED = dg.DagsterRunStatus.CANCELED
SECRET = "canary-of-a-launcher-3be0d2"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProject]:
    with traced(), warm_project(tmp_path_factory.mktemp("warm")) as project:
        yield project


def test_the_second_run_finds_the_worker_of_the_first(project: WarmProject) -> None:
    first, second = project.launch(note="a", until="second"), project.launch(note="b")
    project.let_go("second")

    assert (project.end_of(first), project.end_of(second)) == (SUCCESS, SUCCESS)
    worker = project.worker_of(first)
    assert project.worker_of(second) == worker != os.getpid()
    assert f"Handed to the warm worker (pid {worker}); 1 before it." in project.log_of(second)
    # What a run writes is no more private than in a cold one.
    sample = project.folder / "helper.py"
    assert (project.folder / "notes.txt").stat().st_mode == sample.stat().st_mode


def test_the_worker_of_a_failed_run_is_not_used_again(project: WarmProject) -> None:
    failed = project.launch(fails=True)
    after = project.launch()

    assert (project.end_of(failed), project.end_of(after)) == (FAILURE, SUCCESS)
    assert project.worker_of(after) != project.worker_of(failed)
    steps = project.instance.all_logs(failed, of_type=dg.DagsterEventType.STEP_FAILURE)
    assert len(steps) == 1


def test_a_run_is_executed_again(project: WarmProject) -> None:
    first = project.launch(note="again")
    project.end_of(first)
    again = project.re_execute(first)

    assert project.end_of(again) == SUCCESS
    assert project.run(again).parent_run_id == first
    assert [note for note, *_ in project.notes()].count("again") == 2


def test_runs_wait_in_order_and_one_is_withdrawn(project: WarmProject) -> None:
    runs = {note: project.launch(note=note, until="last") for note in ("one", "two", "three")}
    withdrawn = project.launch(note="never")
    last = project.launch(note="last")
    health = project.launcher.check_run_worker_health(project.run(last))

    assert project.launcher.terminate(withdrawn)
    project.let_go("last")

    assert project.run(withdrawn).status == CANCELED
    assert health.status == WorkerStatus.RUNNING
    assert project.end_of(last) == SUCCESS
    assert {project.end_of(run) for run in runs.values()} == {SUCCESS}
    assert [note for note, *_ in project.notes()][-4:] == ["one", "two", "three", "last"]
    assert not project.launcher.terminate(last)


def test_processes_that_need_a_worker_at_once_share_one(project: WarmProject) -> None:
    _end_keeper(project)
    with ThreadPoolExecutor() as at_once:
        theirs = [at_once.submit(project.launch_from_another_process) for _ in range(2)]
        runs = [project.launch(), *(launch.result(60) for launch in theirs)]

    assert {project.end_of(run) for run in runs} == {SUCCESS}
    assert len({project.worker_of(run) for run in runs}) == 1
    assert len(project.records()) == 1


def test_a_changed_file_is_seen_by_the_next_run(project: WarmProject) -> None:
    before = _ended(project, project.launch(note="old"))
    slow = project.launch(note="slow", until="changed")
    waiting = project.launch(note="new")
    wait_until(lambda: project.notes()[-1][0] == "slow", "the run before it")

    (project.folder / "helper.py").write_text("VALUE = 'second'\n")
    project.let_go("changed")

    assert project.end_of(waiting) == SUCCESS
    assert [(note, value) for note, value, _ in project.notes()[-2:]] == [
        ("slow", "first"),
        ("new", "second"),
    ]
    assert project.worker_of(slow) == project.worker_of(before) != project.worker_of(waiting)


def test_a_run_is_interrupted(project: WarmProject) -> None:
    run = project.launch(seconds=60)
    waiting = project.launch()
    worker = project.start_of(run)
    health = project.launcher.check_run_worker_health(project.run(run))
    told = project.launcher.get_run_worker_debug_info(project.run(run))

    assert project.launcher.terminate(run)

    assert told is not None
    assert told.startswith(f"The log of its worker: {project.home}/laminar_warm/")
    assert project.end_of(run) == CANCELED
    assert "DagsterExecutionInterruptedError" in str(
        project.instance.all_logs(run, of_type=dg.DagsterEventType.RUN_CANCELED)
    )
    assert (health.status, health.run_worker_id) == (WorkerStatus.RUNNING, str(worker))
    assert project.end_of(waiting) == SUCCESS
    assert project.worker_of(waiting) != worker


def test_a_run_that_ignores_the_interrupt_is_killed(project: WarmProject) -> None:
    run = project.launch(seconds=60, ignores_interrupts=True)
    worker = project.start_of(run)

    assert project.launcher.terminate(run)

    assert project.end_of(run) == CANCELED
    assert "did not react to the interrupt within 2 s" in project.log_of(run)
    assert not is_alive(worker)


def test_a_run_is_cancelled_while_its_worker_starts(project: WarmProject) -> None:
    run = project.create(note="too early")
    launch = _launch_in_background(project, run)
    wait_until(lambda: run in project.runs_of_keepers(), "its keeper")

    assert project.launcher.terminate(run)

    launch.result(30)
    assert project.run(run).status == CANCELED
    assert project.end_of(project.launch()) == SUCCESS
    assert "too early" not in {note for note, *_ in project.notes()}


def test_a_killed_worker_fails_its_run_and_no_other(project: WarmProject) -> None:
    run = project.launch(seconds=60)
    waiting = project.launch()
    worker = project.start_of(run)

    os.kill(worker, signal.SIGKILL)

    assert project.end_of(run) == FAILURE
    assert f"(pid {worker}) is gone: it was killed by signal 9 (SIGKILL)" in project.log_of(run)
    assert str(project.home / "laminar_warm") in project.log_of(run)
    assert project.end_of(waiting) == SUCCESS
    assert project.worker_of(waiting) != worker
    health = project.launcher.check_run_worker_health(project.run(run))
    assert health.status == WorkerStatus.SUCCESS


def test_a_worker_killed_between_runs_costs_no_run(project: WarmProject) -> None:
    worker = project.worker_of(_ended(project, project.launch()))

    os.kill(worker, signal.SIGKILL)

    after = project.launch()
    assert project.end_of(after) == SUCCESS
    assert project.worker_of(after) != worker


def test_a_killed_keeper_takes_its_worker_along_and_fails_its_runs(project: WarmProject) -> None:
    run = project.launch(seconds=60, ignores_interrupts=True)
    waiting = project.launch()
    worker = project.start_of(run)
    (record,) = project.records()

    os.kill(record.keeper_pid, signal.SIGKILL)

    # Nobody launches: the thread that watches in this process reports them.
    assert (project.end_of(run), project.end_of(waiting)) == (FAILURE, FAILURE)
    assert f"(pid {record.keeper_pid}) was killed" in project.log_of(waiting)
    assert not is_alive(worker)
    after = project.launch()
    assert project.end_of(after) == SUCCESS


def test_a_keeper_killed_in_a_launch_fails_the_run_once(project: WarmProject) -> None:
    _end_keeper(project)
    run = project.create(note="unclear")
    launch = _launch_in_background(project, run)
    wait_until(lambda: run in project.runs_of_keepers(), "its keeper")
    (record,) = project.records()

    os.kill(record.keeper_pid, signal.SIGKILL)

    launch.result(30)
    assert project.run(run).status == FAILURE
    failures = project.instance.all_logs(run, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert len(failures) == 1
    assert "unclear" not in {note for note, *_ in project.notes()}


def test_a_keeper_that_is_stopped_interrupts_its_run(project: WarmProject) -> None:
    run = project.launch(seconds=60)
    worker = project.start_of(run)
    (record,) = project.records()

    os.kill(record.keeper_pid, signal.SIGTERM)

    assert project.end_of(run) == FAILURE
    assert "Execution was interrupted unexpectedly" in project.log_of(run)
    wait_until(lambda: not is_alive(worker) and not is_alive(record.keeper_pid), "their end")
    assert project.records() == []


def test_code_that_does_not_load_fails_the_run_as_in_a_cold_one(project: WarmProject) -> None:
    good = (project.folder / "helper.py").read_text()
    (project.folder / "helper.py").write_text("raise RuntimeError('not today')\n")
    run = project.launch()
    assert project.end_of(run) == FAILURE
    (project.folder / "helper.py").write_text(good)

    after = project.launch()

    assert project.end_of(after) == SUCCESS
    assert "Could not load job definition." in project.log_of(run)
    assert project.worker_of(after) != project.worker_of(run)


def test_without_a_worker_the_run_is_launched_cold(
    project: WarmProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another environment, so another worker; this one cannot import the worker's code.
    monkeypatch.setenv("PYTHONPATH", str(project.folder / "broken"))
    broken = project.folder / "broken" / "msgspec.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('no such thing here')\n")

    run = project.launch(seconds=60)
    wait_until(lambda: "cold" in project.run(run).tags.values(), "the tag")
    wait_until(lambda: project.run(run).status == dg.DagsterRunStatus.STARTED, "the run")
    health = project.launcher.check_run_worker_health(project.run(run))

    assert "Launched cold: its keeper ended with code 1; see" in project.log_of(run)
    assert health.status == WorkerStatus.RUNNING
    assert project.launcher.terminate(run)
    assert project.end_of(run) == CANCELED


def test_another_environment_has_its_own_worker_that_ends_with_its_launcher(
    project: WarmProject,
) -> None:
    mine = project.worker_of(_ended(project, project.launch()))
    # By their keepers: a run that has ended leaves the record a moment later.
    before = {record.keeper_pid for record in project.records()}

    run = project.launch_from_another_process({"DATABASE": "another"}, seconds=1)

    (record,) = [record for record in project.records() if record.keeper_pid not in before]
    assert project.end_of(run) == SUCCESS
    assert project.worker_of(run) == record.worker_pid != mine
    wait_until(lambda: not any(map(is_alive, pids_of(record))), "its end", 15)
    assert {record.keeper_pid for record in project.records()} == before
    assert is_alive(mine)


def test_what_is_in_the_environment_of_a_keeper_and_its_worker_is_nowhere_else(
    project: WarmProject,
) -> None:
    before = {record.keeper_pid for record in project.records()}
    run = project.launch_from_another_process({"LAKE_KEY": SECRET}, until="looked at")

    (record,) = [record for record in project.records() if record.keeper_pid not in before]
    for pid in pids_of(record):
        assert SECRET in environment_of(pid)
        assert SECRET not in command_line(pid)
    project.let_go("looked at")
    assert project.end_of(run) == SUCCESS
    assert [*files_with(SECRET, project.folder, project.home)] == []


def _ended(project: WarmProject, run_id: str) -> str:
    assert project.end_of(run_id) == SUCCESS
    return run_id


def _launch_in_background(project: WarmProject, run_id: str) -> "Future[dg.DagsterRun]":
    launcher = ThreadPoolExecutor(1)
    launch = launcher.submit(project.instance.launch_run, run_id, project.workspace)
    launcher.shutdown(wait=False)
    return launch


def _end_keeper(project: WarmProject) -> None:
    (record,) = project.records()
    os.kill(record.keeper_pid, signal.SIGTERM)
    wait_until(lambda: not project.records(), "the end of the keeper")

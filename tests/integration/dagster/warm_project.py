"""A small project with a warm launcher, and a hand to launch its runs as the webserver would."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._cli.job import _create_run
from dagster._core.execution.plan.resume_retry import ReexecutionStrategy
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import PythonFileTarget

from infra.load import Deadline
from laminar_dagster.orchestration.warm.folder import KeeperFolder, Record, is_held
from laminar_dagster.orchestration.warm.launcher import WarmRunLauncher

PROJECT = """
import os
import signal
import time
from pathlib import Path

import dagster as dg

import helper


class Work(dg.Config):
    seconds: float = 0.0
    until: str = ""
    ignores_interrupts: bool = False
    fails: bool = False
    note: str = ""


@dg.op
def work(config: Work) -> None:
    with Path(__file__).with_name("notes.txt").open("a") as notes:
        notes.write(f"{config.note} {helper.VALUE} {os.getpid()}\\n")
    if config.ignores_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = time.monotonic() + config.seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    while config.until and not Path(__file__).with_name(config.until).exists():
        time.sleep(0.05)
    if config.fails:
        raise ValueError("as it was told")


@dg.job(executor_def=dg.in_process_executor)
def working() -> None:
    work()


defs = dg.Definitions(jobs=[working])
"""

LAUNCH = """
import sys
import dagster as dg
with dg.DagsterInstance.get() as instance:
    instance.launch_run(sys.argv[1], None)
"""


@dataclass(frozen=True, slots=True)
class WarmProject:
    """The project, its instance, and a workspace that has it loaded."""

    folder: Path
    home: Path
    instance: dg.DagsterInstance
    workspace: WorkspaceRequestContext

    @property
    def launcher(self) -> WarmRunLauncher:
        launcher = self.instance.run_launcher
        assert isinstance(launcher, WarmRunLauncher)
        return launcher

    def launch(self, **work: Any) -> str:
        """Launch a run of ``work`` with this config."""
        run_id = self.create(**work)
        self.instance.launch_run(run_id, self.workspace)
        return run_id

    def launch_from_another_process(self, environment: Mapping[str, str] = {}, **work: Any) -> str:
        """Launch a run from a process that ends as soon as that is done."""
        run_id = self.create(**work)
        subprocess.run(
            [sys.executable, "-c", LAUNCH, run_id],
            env={**os.environ, **environment},
            check=True,
            timeout=60,
        )
        return run_id

    def create(self, **work: Any) -> str:
        """Create a run of ``work`` with this config, without launching it."""
        location = self.workspace.code_locations[0]
        repository = next(iter(location.get_repositories().values()))
        run = _create_run(
            instance=self.instance,
            code_location=location,
            remote_repo=repository,
            remote_job=repository.get_full_job("working"),
            run_config={"ops": {"work": {"config": work}}},
            tags=None,
            op_selection=None,
            run_id=None,
        )
        return str(run.run_id)

    def re_execute(self, run_id: str) -> str:
        """Launch a run again, as the UI does."""
        location = self.workspace.code_locations[0]
        repository = next(iter(location.get_repositories().values()))
        run = self.instance.create_reexecuted_run(
            request_context=self.workspace,
            parent_run=self.run(run_id),
            code_location=location,
            remote_job=repository.get_full_job("working"),
            strategy=ReexecutionStrategy.ALL_STEPS,
            use_parent_run_tags=True,
        )
        self.instance.launch_run(run.run_id, self.workspace)
        return str(run.run_id)

    def run(self, run_id: str) -> dg.DagsterRun:
        """The run as it is now."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def end_of(self, run_id: str, seconds: float = 30.0) -> dg.DagsterRunStatus:
        """Wait for a run to end, and tell how it did."""
        wait_until(lambda: self.run(run_id).is_finished, f"the end of {run_id}", seconds)
        return self.run(run_id).status

    def start_of(self, run_id: str) -> int:
        """Wait until a run executes its step, and tell in which process."""
        started = dg.DagsterEventType.STEP_START
        wait_until(
            lambda: bool(self.instance.all_logs(run_id, of_type=started)), f"the start of {run_id}"
        )
        return self.worker_of(run_id)

    def worker_of(self, run_id: str) -> int:
        """The process that executed the run."""
        return int(self.run(run_id).tags["laminar/worker"])

    def log_of(self, run_id: str) -> str:
        """Every message of the run's event log."""
        return "\n".join(
            entry.user_message or entry.message for entry in self.instance.all_logs(run_id)
        )

    def let_go(self, until: str) -> None:
        """End the runs that wait for this."""
        (self.folder / until).touch()

    def notes(self) -> list[list[str]]:
        """What the steps wrote: note, value and process."""
        return [line.split(" ") for line in (self.folder / "notes.txt").read_text().splitlines()]

    def runs_of_keepers(self) -> set[str]:
        """The runs that wait or execute."""
        return {run for record in self.records() for run in record.runs}

    def records(self) -> list[Record]:
        """What the keepers left for others to read."""
        records = (folder.record() for folder in KeeperFolder.all(self.home.resolve()))
        return [record for record in records if record is not None]


@contextlib.contextmanager
def warm_project(
    folder: Path, options: Mapping[str, object] = {"terminate_seconds": 2}
) -> Iterator[WarmProject]:
    """A project and an instance in a new folder. Nothing that it started is left behind."""
    home = folder / "home"
    code = folder / "code"
    home.mkdir(parents=True)
    code.mkdir()
    (code / "project.py").write_text(PROJECT)
    (code / "helper.py").write_text("VALUE = 'first'\n")
    launcher = {
        "module": "laminar_dagster.orchestration.warm.launcher",
        "class": "WarmRunLauncher",
        "config": dict(options),
    }
    quiet = {"telemetry": {"enabled": False}}
    (home / "dagster.yaml").write_text(yaml.safe_dump({"run_launcher": launcher, **quiet}))
    target = PythonFileTarget(str(code / "project.py"), "defs", str(code), None)
    with (
        pytest.MonkeyPatch.context() as patch,
        _nothing_left_of(home),
        dg.DagsterInstance.from_config(str(home)) as instance,
        WorkspaceProcessContext(instance, target) as process,
    ):
        patch.setenv("DAGSTER_HOME", str(home))
        yield WarmProject(code, home, instance, process.create_request_context())


@contextlib.contextmanager
def _nothing_left_of(home: Path) -> Iterator[None]:
    """Wait for the keepers of an instance to end by themselves, after it was closed."""
    yield
    folders = KeeperFolder.all(home.resolve())
    locks = [lock for folder in folders for lock in (folder.keeper_lock, folder.worker_lock)]
    wait_until(lambda: not any(map(is_held, locks)), f"the end of the workers of {home}")


def pids_of(record: Record) -> set[int]:
    """The processes of a keeper."""
    return {record.keeper_pid, record.worker_pid} - {0}


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and not only what a dead one leaves to its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for something to happen."""
    deadline = Deadline(seconds)
    while not is_so():
        assert not deadline.is_over, f"waited {deadline} for {what}"
        time.sleep(0.05)

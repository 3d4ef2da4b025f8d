"""``laminar run`` with Dagster: each epoch is a run of ``<p>_epoch_and_commit``, in this process.

The definitions are built once and Spark stays warm, so a run only costs writing Dagster's records.
Waiting and retrying stay with the loop: an error of an epoch is recorded as a failed run, and
raised to the loop unchanged.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dagster as dg
from sqlalchemy.exc import SQLAlchemyError

from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.redaction import redact
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.errors import (
    DagsterUnavailable,
    InvalidDagsterHome,
    RunNotCarriedOut,
)
from laminar_dagster.orchestration.names import (
    EPOCH_TAG,
    PIPELINE_TAG,
    REVISION_TAG,
    partition_key,
)
from laminar_dagster.orchestration.pipeline_defs import build_definitions
from laminar_dagster.orchestration.private_api import (
    ProjectCode,
    create_run,
    execute_here,
    open_quiet_instance,
)
from laminar_dagster.orchestration.resident_runs import ResidentProcess, give_up, reap
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.epoch import EpochReport, EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline

if TYPE_CHECKING:
    from laminar_dagster.spark.session import SessionFactory

OnStep = Callable[[EpochNumber, str], None]

_DEFINITIONS: Final = "definitions.py"
_LOCATION: Final = "laminar"
_HALVES: Final = 2
# The packages of Dagster's database storages: their exceptions mean that storage is unavailable.
_STORAGES: Final = ("sqlalchemy", "dagster_postgres", "dagster_mysql", "psycopg2")


@contextlib.contextmanager
def open_resident(
    model: PipelineModel, project: Path, pipeline: Pipeline, on_step: OnStep, home: str
) -> Iterator[ResidentRunner]:
    """Open a runner that records each epoch of a pipeline as a run of a Dagster instance.

    Args:
        model: What the pipeline's author wrote.
        project: Where relative paths begin, and where ``dagster dev`` finds the definitions.
        pipeline: Ready to run; it stays open from run to run.
        on_step: Called as every step begins.
        home: The value of ``DAGSTER_HOME``.

    Raises:
        InvalidDagsterHome: It cannot be used.
        DagsterUnavailable: Its storage is unavailable.
    """
    stream = _WarmStream(model, Path(os.path.abspath(project)), pipeline=pipeline)
    with open_home(home) as instance, ResidentRunner(stream, instance, on_step) as runner:
        yield runner


@contextlib.contextmanager
def open_home(home: str) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance of a home.

    Raises:
        InvalidDagsterHome: It cannot be used.
        DagsterUnavailable: Its storage is unavailable.
    """
    folder = _usable(home)
    with contextlib.ExitStack() as stack:
        try:
            instance = stack.enter_context(open_quiet_instance(folder))
            # Dagster connects lazily: read something now, to find out whether storage answers.
            instance.get_runs(limit=1)
        except Exception as error:
            if _is_of_storage(error):
                raise DagsterUnavailable(str(folder), _first_line(error)) from error
            what = "it" if isinstance(error, OSError) else "its dagster.yaml"
            reason = f"{what} cannot be used: {_first_line(error)}"
            raise InvalidDagsterHome(str(folder), reason) from error
        yield instance


@dataclass
class ResidentRunner:
    """Runs epochs one after the other, each as a run of Dagster.

    All runs are on one thread, as a Spark session is active only in the thread that asked for it.
    It is not the main thread, where Dagster would take over Ctrl-C and SIGTERM.
    """

    stream: Stream
    instance: dg.DagsterInstance
    on_step: OnStep
    process: ResidentProcess = field(default_factory=ResidentProcess.this)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="laminar-run")
    )
    _reports: list[EpochReport] = field(default_factory=list)
    _error: Exception | None = None
    _is_clean: bool = True

    def __post_init__(self) -> None:
        """Build the job once, for all runs."""
        self.stream.watcher = self
        names = self.stream.names
        self._job = build_definitions(self.stream).resolve_job_def(names.job("epoch_and_commit"))
        self._code = ProjectCode.of(self.stream.project, _DEFINITIONS, _LOCATION)

    def __enter__(self) -> ResidentRunner:
        """Report the runs as failed that a dead process has left."""
        with self._storage():
            reap(self.instance, self.stream.names)
        return self

    def __exit__(self, *_error: object) -> None:
        """End the thread."""
        self._thread.shutdown()

    def run(self, epoch: EpochNumber | None = None) -> EpochReport:
        """Run an epoch as one Dagster run; by default the oldest unfinished one, or a new one.

        Raises:
            LaminarError: As ``EpochRunner.run``; the run is recorded as failed.
            DagsterUnavailable: The run could not be recorded.
            RunNotCarriedOut: Somebody cancelled the run, or Dagster could not execute it.
        """
        return self._thread.submit(self._run, epoch).result()

    def _run(self, epoch: EpochNumber | None) -> EpochReport:
        epoch = epoch or EpochRunner(self.stream.open(None)).next_epoch()
        self._reports, self._error = [], None
        run_id, reason = str(uuid.uuid4()), "it was over before it began"
        trouble: Exception | None = None
        try:
            with self._storage():
                reason = self._execute(epoch, run_id) or reason
        except Exception as error:
            self._is_clean, trouble = False, error
        # The error of a step says more than the one Dagster's execution ended with.
        trouble = self._own_error() or trouble
        is_finished = len(self._reports) == _HALVES
        # If the epoch is finished, only Dagster's events are missing: the sensor reports them.
        if trouble and not (is_finished and isinstance(trouble, DagsterUnavailable)):
            raise trouble
        if not is_finished:
            raise RunNotCarriedOut(run_id, reason)
        first, second = self._reports
        return replace(second, steps=first.steps + second.steps)

    def _own_error(self) -> Exception | None:
        """The error that a step ended with, which may be one of Dagster's storage, too."""
        if self._error is not None and _is_of_storage(self._error):
            return self._unavailable(self._error)
        return self._error

    def _execute(self, epoch: EpochNumber, run_id: str) -> str:
        """Execute a run; return the message of the last failure event."""
        names, key = self.stream.names, partition_key(epoch)
        if not self._is_clean:
            give_up(self.instance, names, self.process)
            self._is_clean = True
        self.instance.add_dynamic_partitions(names.partitions, [key])
        tags = {
            PIPELINE_TAG: str(names.pipeline),
            EPOCH_TAG: str(epoch),
            REVISION_TAG: self.stream.revision,
            "dagster/partition": key,
            **self.process.tags(run_id),
        }
        run = create_run(self.instance, self._job, run_id, tags, self._code)
        reason = ""
        for event in execute_here(self.instance, self._job, run):
            if event.is_failure:
                reason = event.message or event.event_type_value
        return reason

    @contextlib.contextmanager
    def _storage(self) -> Iterator[None]:
        """Translate errors of Dagster's storage to ``DagsterUnavailable``."""
        try:
            yield
        except LaminarError:
            raise
        except Exception as error:
            # An OSError here is, for example, a full disk: errors of steps do not come this way.
            if not isinstance(error, OSError) and not _is_of_storage(error):
                raise
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> DagsterUnavailable:
        return DagsterUnavailable(self.instance.root_directory, _first_line(error))

    # --- implements Watcher: called by the steps of a run -------------------------------------

    def step(self, epoch: EpochNumber, name: str) -> None:
        """See ``Watcher.step``."""
        self.on_step(epoch, name)

    def done(self, report: EpochReport) -> None:
        """See ``Watcher.done``."""
        self._reports.append(report)

    def failed(self, error: Exception) -> None:
        """See ``Watcher.failed``."""
        self._error = error


@dataclass(eq=False)
class _WarmStream(Stream):
    """A stream whose pipeline is opened once, and stays open."""

    pipeline: Pipeline | None = None

    def open(self, session: SessionFactory | None) -> Pipeline:
        """The pipeline that is already open, with its own Spark session."""
        return self.pipeline or super().open(session)


def _usable(home: str) -> Path:
    folder = Path(os.path.expanduser(home))
    if not folder.is_absolute():
        raise InvalidDagsterHome(home, "it is not a whole path, from / on")
    if not folder.is_dir():
        raise InvalidDagsterHome(home, "there is no such folder")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidDagsterHome(home, "it cannot be written to")
    return folder


def _is_of_storage(error: BaseException) -> bool:
    return isinstance(error, SQLAlchemyError) or type(error).__module__.startswith(_STORAGES)


def _first_line(error: BaseException) -> str:
    lines = [line for line in redact(str(error)).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__

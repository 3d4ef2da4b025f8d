"""A run launcher whose runs start warm: it hands them to a process that has the code loaded.

In ``dagster.yaml``::

    run_launcher:
      module: laminar_dagster.orchestration.warm.launcher
      class: WarmRunLauncher
      config:
        idle_seconds: 1800
        start_seconds: 60
        terminate_seconds: 10

What it cannot serve it gives to Dagster's default launcher, and says so in the run's event log.
The tag ``laminar/worker`` holds the pid of the process that executed a run, or ``cold``.

A worker that succeeded executes the next run; after a failure or an interrupt a fresh one is
started, as the cause may lie in the process.

A worker executes one run at a time. Others of the same code location wait for it, and Dagster shows
them as starting; so limit concurrent runs in ``dagster.yaml`` to have them wait in Dagster's queue,
where run monitoring does not take them for runs that hang.

A run has the environment and the current folder of the process that launched it. With ``dagster
dev`` these are those of the code server too.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, Self

import dagster as dg

from laminar_dagster.orchestration.private_api import (
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
    code_origin,
    is_with_code_server,
    report_engine_event,
)
from laminar_dagster.orchestration.resident_runs import ResidentProcess
from laminar_dagster.orchestration.warm.connection import ConnectionLost
from laminar_dagster.orchestration.warm.identity import WORKER_TAG, why_not_served
from laminar_dagster.orchestration.warm.keepers import Keepers, LaunchUnclear, Limits, NotServed
from laminar_dagster.orchestration.warm.protocol import (
    Ask,
    Cancel,
    Interrupting,
    Running,
    Waiting,
    Withdrawn,
)

_COLD: Final = "cold"
_POLL_SECONDS: Final = 0.05


def _seconds(default: int, description: str) -> dg.Field:
    return dg.Field(dg.IntSource, is_required=False, default_value=default, description=description)


class WarmRunLauncher(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """Launches runs in a worker that stays between them."""

    def __init__(
        self,
        inst_data: ConfigurableClassData | None = None,
        idle_seconds: int = 1800,
        start_seconds: int = 60,
        terminate_seconds: int = 10,
    ) -> None:
        """Launch within these limits.

        Args:
            inst_data: What Dagster read from ``dagster.yaml``.
            idle_seconds: End a worker that had no run for so long.
            start_seconds: Launch cold when a worker takes longer to start.
            terminate_seconds: Kill a run that does not react to its termination within this time.

        Raises:
            ValueError: A limit is not above zero.
        """
        given = {
            "idle_seconds": idle_seconds,
            "start_seconds": start_seconds,
            "terminate_seconds": terminate_seconds,
        }
        for name, seconds in given.items():
            if seconds <= 0:
                raise ValueError(f"`{name}` of the run launcher must be above 0, not {seconds}")
        super().__init__()  # type: ignore[no-untyped-call]
        self._inst_data = inst_data
        self._limits = Limits(idle_seconds, start_seconds, terminate_seconds)
        self._default = dg.DefaultRunLauncher()
        self._keepers: Keepers | None = None
        self._launched: set[str] = set()

    # --- what Dagster asks of a configurable class ----------------------------------------------

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """What Dagster read from ``dagster.yaml``."""
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, dg.Field]:
        """The options, and their defaults."""
        return {
            "idle_seconds": _seconds(1800, "End a worker that had no run for so long."),
            "start_seconds": _seconds(60, "Launch cold when a worker takes longer to start."),
            "terminate_seconds": _seconds(
                10, "Kill a run that does not react to its termination within this time."
            ),
        }

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Self:
        """Make a launcher from ``dagster.yaml``."""
        return cls(inst_data, **config_value)

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        """Launch for this instance."""
        super().register_instance(instance)
        self._default.register_instance(instance)

    # --- launch ---------------------------------------------------------------------------------

    def launch_run(self, context: LaunchRunContext) -> None:
        """Hand the run to a worker, or to Dagster's default launcher."""
        run = context.dagster_run
        origin = code_origin(run)
        reason = why_not_served(origin)
        if origin is None or reason is not None:
            self._launch_cold(context, reason or "")
            return
        try:
            accepted = self._known_keepers().submit(run.run_id, origin)
        except NotServed as error:
            self._launch_cold(context, str(error))
            return
        except LaunchUnclear:
            if self._is_over(run.run_id):
                return
            raise
        if isinstance(accepted, Withdrawn):
            return
        self._launched.add(run.run_id)
        waits = f"; {accepted.ahead} before it" if accepted.ahead else ""
        report_engine_event(
            self._instance,
            run,
            f"Handed to the warm worker (pid {accepted.worker_pid}){waits}.",
            {"pid": str(accepted.worker_pid)},
        )

    def _launch_cold(self, context: LaunchRunContext, reason: str) -> None:
        run = context.dagster_run
        report_engine_event(self._instance, run, f"Launched cold: {reason}.")
        self._instance.add_run_tags(run.run_id, {WORKER_TAG: _COLD})
        self._default.launch_run(context)

    # --- terminate ------------------------------------------------------------------------------

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run, or withdraw it if it waits; return whether that was done."""
        if not self.has_instance:
            return False
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        keepers = self._known_keepers()
        if keepers.holder(run_id) is None:
            return bool(self._default.terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        try:
            reply = keepers.ask(Cancel(run_id=run_id))
        except ConnectionLost:
            # If its keeper is dead, the run was reported as over, with the keeper's other runs.
            return self._is_over(run_id)
        match reply:
            case Withdrawn():
                self._instance.report_run_canceled(run, "The run was cancelled while it waited.")
                return True
            case Interrupting():
                return True
            case _:
                return self._is_over(run_id)

    # --- health ---------------------------------------------------------------------------------

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: Dagster's run monitoring may check the health of workers."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether a process still executes the run."""
        resident = ResidentProcess.of(run)
        if resident is not None:
            # A `laminar run` executes it; one on another machine cannot be checked from here.
            status = WorkerStatus.FAILED if resident.is_gone() else WorkerStatus.RUNNING
            return CheckRunHealthResult(status, run_worker_id=str(resident.pid))
        try:
            reply = self._known_keepers().ask(Ask(run_id=run.run_id))
        except ConnectionLost as lost:
            return self._without_worker(run, str(lost))
        match reply:
            case Running(worker_pid=pid):
                return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=str(pid))
            case Waiting(ahead=ahead):
                return CheckRunHealthResult(WorkerStatus.RUNNING, f"{ahead} runs before it")
            case None if is_with_code_server(run):
                # The code server itself notices when the process of a run is gone.
                return CheckRunHealthResult(WorkerStatus.RUNNING, "it was launched cold")
            case _:
                return self._without_worker(run, "no worker has the run")

    def get_run_worker_debug_info(
        self, run: dg.DagsterRun, include_container_logs: bool | None = True
    ) -> str | None:
        """Where the worker of the run writes what it prints."""
        folder = self._known_keepers().holder(run.run_id)
        return None if folder is None else f"The log of its worker: {folder.log}"

    def _without_worker(self, run: dg.DagsterRun, reason: str) -> CheckRunHealthResult:
        if self._is_over(run.run_id):
            return CheckRunHealthResult(WorkerStatus.SUCCESS)
        return CheckRunHealthResult(WorkerStatus.FAILED, reason)

    def _is_over(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        return run is None or run.is_finished

    # --- the end --------------------------------------------------------------------------------

    def join(self, timeout: int = 30) -> None:
        """Wait for the runs that were launched here.

        Raises:
            TimeoutError: Some are not over.
        """
        if not self.has_instance:
            return
        deadline = time.monotonic() + timeout
        while self._launched:
            self._launched = {run_id for run_id in self._launched if not self._is_over(run_id)}
            if self._launched and time.monotonic() >= deadline:
                raise TimeoutError(f"not over within {timeout} s: {sorted(self._launched)}")
            time.sleep(_POLL_SECONDS)
        self._default.join(timeout)  # type: ignore[no-untyped-call]

    def dispose(self) -> None:
        """Disconnect from the keepers. One that no other launcher uses ends after its last run."""
        if self._keepers is not None:
            self._keepers.close()
        self._default.dispose()

    def _known_keepers(self) -> Keepers:
        if self._keepers is None:
            self._keepers = Keepers.of(self._instance, self._limits)
        return self._keepers

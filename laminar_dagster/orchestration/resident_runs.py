"""Which process a run of a resident loop belongs to, and ending runs whose process is gone.

Without this they would stay "started" for ever: Dagster's run monitoring only watches processes
that Dagster has launched.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg

from laminar_dagster.orchestration.names import ERROR_TAG, Names
from laminar_dagster.orchestration.run_history import under_way
from laminar_dagster.orchestration.warm.lost_runs import end_lost_run

# For people: the machine and the process whose loop made the run.
RESIDENT_TAG: Final = "laminar/resident"
# For programs: when that process began, and the id of the run. A re-executed run inherits this tag,
# but has another id, so it is not taken for one of a resident process.
CLAIM_TAG: Final = "laminar/resident_claim"
LOST: Final = "process_lost"

_NOBODY: Final = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class ResidentProcess:
    """One process of one machine.

    Attributes:
        began: When it began, which tells it from other processes with the same number.
    """

    host: str
    pid: int
    began: str

    @classmethod
    def this(cls) -> ResidentProcess:
        """The current process."""
        return cls.numbered(os.getpid())

    @classmethod
    def numbered(cls, pid: int) -> ResidentProcess:
        """The process of this machine that has a number now."""
        return cls(socket.gethostname(), pid, _began(pid) or "none")

    @classmethod
    def of(cls, run: dg.DagsterRun) -> ResidentProcess | None:
        """The process that executes a run; None when no resident loop does."""
        host, _, pid = run.tags.get(RESIDENT_TAG, "").rpartition(":")
        began, _, run_id = run.tags.get(CLAIM_TAG, "").rpartition("/")
        if not host or not pid.isdecimal() or run_id != run.run_id:
            return None
        return cls(host, int(pid), began)

    def tags(self, run_id: str) -> dict[str, str]:
        """The tags of a run that this process executes."""
        return {RESIDENT_TAG: f"{self.host}:{self.pid}", CLAIM_TAG: f"{self.began}/{run_id}"}

    def is_gone(self) -> bool:
        """Whether it is known to have ended; False for a process of another machine."""
        return self.host == socket.gethostname() and _began(self.pid) != self.began


def reap(instance: dg.DagsterInstance, names: Names) -> list[str]:
    """Report as failed the runs of a pipeline whose resident process of this machine is gone.

    Their epochs are not lost: the next run finishes them.

    Returns:
        The ids of the runs.
    """
    gone = []
    for run in under_way(instance, names):
        process = ResidentProcess.of(run)
        if process and process.is_gone():
            told = f"The process of its `laminar run` (pid {process.pid}) is gone"
            _end(instance, run, told)
            gone.append(run.run_id)
    return gone


def give_up(instance: dg.DagsterInstance, names: Names, process: ResidentProcess) -> None:
    """Report as failed the runs of this process that a storage error has interrupted."""
    for run in under_way(instance, names):
        if ResidentProcess.of(run) == process:
            _end(instance, run, "Dagster's storage was away when the run was to be recorded")


def _end(instance: dg.DagsterInstance, run: dg.DagsterRun, reason: str) -> None:
    instance.add_run_tags(run.run_id, {ERROR_TAG: LOST})
    end_lost_run(instance, run.run_id, f"{reason}. Nothing is lost: the next run goes on.")
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def _began(pid: int) -> str | None:
    """When a process began; None when there is none, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return _began_elsewhere(pid)
    try:
        # The name comes second, in brackets, and may contain spaces and brackets: split after it.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except (OSError, ValueError):
        return None
    return None if state in _NOBODY else f"{boot}.{rest[18]}"


def _began_elsewhere(pid: int) -> str | None:
    """When a process began, to the second, on systems without ``/proc``."""
    command = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if not told or told[0][0] in _NOBODY:
        return None
    return re.sub(r"\W", "-", "_".join(told[1:]))

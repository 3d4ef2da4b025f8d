"""Operating-system processes that we start, recognise later, and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

_LEASH = Path(__file__).with_name("leash.py")
# Linux counts start times from boot, so they repeat after a reboot.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_Start = Callable[[], "subprocess.Popen[bytes]"]
_to_start: SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = SimpleQueue()
_starter: list[threading.Thread] = []
_starter_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same number.

    Attributes:
        pid: Process number; also the number of its process group, as each gets a session.
        started: When the process began, in the platform's own notation.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Identify the process ``pid``, or return None if there is none (or only a zombie)."""
        started = _start_of(pid)
        return None if started is None else cls(pid, started)

    def is_running(self) -> bool:
        """Tell whether this very process still runs."""
        return ProcessId.of(self.pid) == self

    def end(self, grace: float = 10.0) -> None:
        """Ask the process to end; after ``grace`` seconds kill it and its process group.

        Does nothing if the process is gone, even if its number now belongs to another.
        """
        if not self._signal(signal.SIGTERM):
            return
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            if not self.is_running():
                return
            time.sleep(0.02)
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)
        while self.is_running():
            time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> bool:
        if not self.is_running():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    cwd: Path,
    environment: Mapping[str, str],
    user: str | None = None,
    outlive: bool = False,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, with its output appended to ``log``.

    Args:
        command: Program and arguments. Anyone may read them: no secrets.
        log: File for standard output and error.
        cwd: Working directory.
        environment: The whole environment of the process.
        user: Account to run as; needs root.
        outlive: Keep the process when this one dies. Otherwise the kernel kills it (Linux only).
    """
    leash = [sys.executable, "-IS", str(_LEASH), str(0 if outlive else os.getpid()), user or "-"]
    with log.open("ab") as output:
        return _in_lasting_thread(
            lambda: subprocess.Popen(
                [*leash, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
        )


def _in_lasting_thread(start: _Start) -> subprocess.Popen[bytes]:
    """Start a process from a thread that ends with this process and not before.

    The kernel kills a child with the *thread* that started it: a short-lived one would take it
    along.
    """
    started: Future[subprocess.Popen[bytes]] = Future()
    with _starter_lock:
        if not any(thread.is_alive() for thread in _starter):
            _starter[:] = [threading.Thread(target=_start_all, name="starter", daemon=True)]
            _starter[0].start()
    _to_start.put((start, started))
    return started.result()


def _start_all() -> None:
    while True:
        start, started = _to_start.get()
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)


def tail(log: Path, lines: int = 20) -> str:
    """Return the last ``lines`` of a log, or a note that it is empty."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def _start_of(pid: int) -> str | None:
    if _BOOT_ID.exists():
        try:
            # The second field, the command's name, may hold blanks and parentheses.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, start_time = fields[0], fields[19]
        return None if state in "ZX" else f"{_BOOT_ID.read_text().strip()}:{start_time}"
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return None if len(answer) < 2 or answer[0].startswith("Z") else answer[1].strip()

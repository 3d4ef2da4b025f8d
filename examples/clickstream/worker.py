"""`laminar run clickstream` as a process of its own, which can be stopped and killed whole.

Killing it kills its Java and its Python workers as well: all that runs in the session that it was
started in. As a power cut would, but for what the operating system still holds in memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

_LAMINAR: Final = Path(sys.executable).with_name("laminar")
_PROCESSES: Final = Path("/proc")


class Worker:
    """A run of the pipeline. As a context, it leaves no process behind."""

    def __init__(self, project: Path, pipeline: str, log: Path) -> None:
        """Start it."""
        self.log = log
        self.began = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [_LAMINAR, "run", pipeline, "--json"],
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process that was started, and of the session."""
        return self._process.pid

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def pause(self) -> None:
        """SIGSTOP to all of it, until nothing new turns up."""
        stopped: set[int] = set()
        while more := set(self._members()) - stopped:
            for pid in more:
                _send(pid, signal.SIGSTOP)
            stopped |= more

    def resume(self) -> None:
        """SIGCONT to all of it."""
        for pid in self._members():
            _send(pid, signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL to all of it, and wait until it is gone.

        Returns:
            How many processes it was.
        """
        # Nobody shall see another one die, and act on it.
        self.pause()
        members = set(self._members())
        while alive := list(self._members()):
            for pid in alive:
                _send(pid, signal.SIGKILL)
            # Reaped here, so that it does not count as alive.
            self._process.poll()
            time.sleep(0.01)
        self._process.kill()
        self._process.wait()
        return len(members)

    def __enter__(self) -> Worker:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Whatever happened, kill what is left, also when Ctrl-C is pressed again."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.kill()
        finally:
            signal.signal(signal.SIGINT, before)

    def _members(self) -> Iterator[int]:
        """The processes of its session that live. Spark's Python workers leave its group."""
        if not _PROCESSES.joinpath("self", "stat").exists():
            # Not Linux. The others end with it, a little later.
            if self._process.poll() is None:
                yield self.pid
            return
        for name in os.listdir(_PROCESSES):
            if not name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                # PID (NAME) STATE PARENT GROUP SESSION …; the name may hold anything.
                text = (_PROCESSES / name / "stat").read_text(errors="replace")
                state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
                if int(session) == self.pid and state not in "ZX":
                    yield int(name)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)

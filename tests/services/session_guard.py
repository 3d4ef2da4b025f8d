"""Run a command, and end with it everything that it started: ``session_guard.py COMMAND…``.

``dagster dev`` starts a webserver, a daemon, code servers and runs, which stay when it is killed.
This script is the leader of their session. When the command ends, when the script is told to end,
and on Linux also when the process that started it is killed, it ends the whole session, and removes
the temporary files of all of them. It runs as a plain file and imports no sibling.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

# Less than whoever stops the leader waits before killing it.
_GRACE = 7.0
_SET_PARENT_DEATH_SIGNAL, _GET_PARENT_DEATH_SIGNAL = 1, 2  # <linux/prctl.h>


class _Told(Exception):
    """The script was told to end."""


def members(leader: int) -> list[int]:
    """The processes of a session that run. Linux alone can tell."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        # It may be gone by now. The second field, the command's name, may hold blanks.
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[3] == str(leader) and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def kill_session(leader: int) -> None:
    """Kill every process of a session but this one, and wait until none runs."""
    while left := [pid for pid in members(leader) if pid != os.getpid()]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(command: list[str]) -> int:
    """Run the command until it ends or the script is told to; return its exit code."""
    signal.signal(signal.SIGTERM, _tell)
    _ask_to_be_told_of_the_parents_death()
    with tempfile.TemporaryDirectory(prefix="dg-", ignore_cleanup_errors=True) as scratch:
        child = subprocess.Popen(command, env={**os.environ, "TMPDIR": scratch})
        try:
            return child.wait()
        except _Told:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE)
            return 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            kill_session(os.getsid(0))


def _tell(number: int, frame: FrameType | None) -> None:
    raise _Told


def _ask_to_be_told_of_the_parents_death() -> None:
    """In place of being killed, if that was asked for."""
    if not sys.platform.startswith("linux"):
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    asked_for = ctypes.c_int()
    prctl(_GET_PARENT_DEATH_SIGNAL, ctypes.byref(asked_for))
    if asked_for.value:
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

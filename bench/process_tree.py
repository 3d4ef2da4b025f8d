"""The processor time of a command and of every process that it starts, whoever that is left to.

``getrusage`` misses Spark's Python workers: their parent ignores SIGCHLD, so nobody is told what
they used. So all of the tree is read from ``/proc``, again and again until it is gone; of a process
that ended, the last that was read counts. Processes whose parent has ended come to this one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.spark_watch import Process, processes

_PAUSE_SECONDS: Final = 0.04
_PR_SET_CHILD_SUBREAPER: Final = 36
_JAVA: Final = "java"


@dataclass(frozen=True, slots=True)
class TreeTime:
    """Seconds of a command: on the wall until it ended, and of the processor by kind of process.

    Attributes:
        driver: The command's own process.
        java: Spark's, and its launcher's.
        others: Python workers above all; shells, and what else Spark starts.
    """

    wall: float
    driver: float
    java: float
    others: float

    @property
    def processor(self) -> float:
        """Of all processes together."""
        return self.driver + self.java + self.others


class CommandFailed(RuntimeError):
    """A command that was to be measured did not succeed."""


def measure_tree(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = 900.0
) -> TreeTime:
    """Run a command, wait until all that it started is gone, and say what that took.

    Raises:
        CommandFailed: With the end of what it said.
    """
    begun = time.monotonic()
    ledger = Ledger()
    log = folder / "measured.log"
    with _adopting(), log.open("w+b") as said:
        mine = os.getpid()
        before = set(below(processes(), mine))
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        ended: float | None = None
        while True:
            # Asked first: what the last of the processes has started is found by the read after it.
            if ended is None and process.poll() is not None:
                ended = time.monotonic()
            everything = processes()
            living = [each for each in below(everything, mine) if each not in before]
            ledger.read(everything, living, process.pid)
            _bury(living, process.pid)
            if ended is not None and not living:
                break
            if time.monotonic() - begun > seconds:
                raise CommandFailed(f"not done after {seconds:.0f} s: {command}")
            time.sleep(_PAUSE_SECONDS)
        if process.returncode:
            raise CommandFailed(log.read_text(errors="replace")[-2000:])
    return ledger.total(ended - begun)


class Ledger:
    """The last that was read of each process."""

    def __init__(self) -> None:
        """Start with none."""
        self._read: dict[int, tuple[str, float]] = {}

    def read(self, everything: Mapping[int, Process], living: Sequence[int], driver: int) -> None:
        """Take down what the processes of the tree have used by now."""
        for number in living:
            process = everything[number]
            kind = "driver" if number == driver else "java" if process.name == _JAVA else "others"
            self._read[number] = (kind, process.own)

    def total(self, wall: float) -> TreeTime:
        """All together. A process that became Java counts as Java from its first second."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for kind, used in self._read.values():
            seconds[kind] += used
        return TreeTime(wall, seconds["driver"], seconds["java"], seconds["others"])


def below(everything: Mapping[int, Process], root: int) -> Iterator[int]:
    """All that descend from a process, without itself."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for number, process in everything.items():
        children[process.parent].append(number)
    waiting = children[root]
    while waiting:
        number = waiting.pop()
        yield number
        waiting += children[number]


def _bury(living: Sequence[int], driver: int) -> None:
    """Take leave of processes that came to this one and have ended, or they would stay for good."""
    for number in living:
        if number != driver:
            with suppress(ChildProcessError):
                os.waitpid(number, os.WNOHANG)


@contextmanager
def _adopting() -> Iterator[None]:
    """Have processes of the tree whose parent ends come to this process."""
    _adopt(1)
    try:
        yield
    finally:
        _adopt(0)


def _adopt(wanted: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_CHILD_SUBREAPER, wanted, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")

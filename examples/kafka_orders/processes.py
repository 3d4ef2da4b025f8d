"""Programs that the demo starts: each can be asked to end, or killed with all that it started.

They end with the demo, even if that is killed itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from examples.clickstream.worker import Worker
from infra.process import spawn, tail

# For temporary files: a process that is killed removes none.
SCRATCH: Final = "tmp"

_ROOT: Final = Path(__file__).parents[2]
_LAMINAR: Final = Path(sys.executable).with_name("laminar")
_LOG_LINES: Final = 15


class Program(Worker):
    """A process in a session of its own. As a context, it leaves no process behind."""

    def __init__(self, command: Sequence[str], project: Path, log: Path) -> None:
        """Start it.

        Args:
            command: Program and arguments.
            project: Where it works. What it would leave in a temporary folder goes there as well.
            log: Where its output goes.
        """
        self.log = log
        self.began = time.monotonic()
        # Epochs of the demo are no runs of the Dagster that somebody may have.
        environment = {name: text for name, text in os.environ.items() if name != "DAGSTER_HOME"}
        scratch = str(project / SCRATCH)
        environment |= {
            "TMPDIR": scratch,
            "SPARK_LOCAL_DIRS": scratch,
            "JAVA_TOOL_OPTIONS": " ".join(
                [os.environ.get("JAVA_TOOL_OPTIONS", ""), *temporary_files_in(scratch)]
            ).strip(),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")])
            ),
        }
        self._process = spawn(command, log=log, cwd=project, environment=environment)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def ask_to_end(self) -> None:
        """SIGTERM to the program itself, which then finishes what it is at."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def last_words(self) -> str:
        """The end of its log."""
        return tail(self.log, _LOG_LINES)


def temporary_files_in(folder: str) -> tuple[str, ...]:
    """Options of Java."""
    return (f"-Djava.io.tmpdir={folder}",)


def pipeline(project: Path, name: str, log: Path) -> Program:
    """The pipeline, as anybody would run it."""
    return Program([str(_LAMINAR), "run", name, "--forever"], project, log)


def producer(project: Path, arguments: Sequence[str], log: Path) -> Program:
    """The program of `examples.kafka_orders.producer`."""
    command = [sys.executable, "-m", "examples.kafka_orders.producer", *arguments]
    return Program(command, project, log)

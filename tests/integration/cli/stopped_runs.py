"""Runs of a pipeline, one after the other in one process, each stopped in another of its steps.

``python -m tests.integration.cli.stopped_runs PROJECT``: they share one start of Spark, which has
to outlive all that is sent to its group. Each run tells how it ended in a line on standard output.
The last one is stopped twice, and so ends the process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from laminar_dagster.cli import signals
from laminar_dagster.cli.main import cli
from laminar_dagster.runtime import steps

STEPS = (
    "plan",
    "compute",
    "gate",
    "prepare",
    "write_manifest",
    "commit_sinks",
    "move_latest",
    "acknowledge",
)
# Java's command line has the name as well, as a setting.
WORKERS = "-m\0laminar_dagster.spark.worker_daemon\0"


def members(session: int) -> Iterator[int]:
    """The processes of a session, whichever group they are in."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name in parentheses: state, parent, group, session.
                _, _, fields = (folder / "stat").read_text().rpartition(")")
                if fields.split()[0] != "Z" and int(fields.split()[3]) == session:
                    yield int(folder.name)


def ask_the_group() -> None:
    """As `timeout` does: its child, then the child's group."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.killpg(0, signal.SIGTERM)


def ask_everybody() -> None:
    """As a service manager may: each process there is, also those that Java has started."""
    others = [each for each in members(os.getsid(0)) if each != os.getpid()]
    for each in (os.getpid(), *others):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGTERM)


def press_ctrl_c() -> None:
    """As a terminal does."""
    os.killpg(0, signal.SIGINT)


def ask_twice() -> None:
    """By somebody who means it: until the process is gone."""
    signals._SAME_WISH_SECONDS = 0.0  # type: ignore[misc]
    while True:
        os.killpg(0, signal.SIGTERM)
        time.sleep(0.1)


def has_workers() -> bool:
    """Whether Spark's Python has come up."""
    for each in members(os.getsid(0)):
        with contextlib.suppress(OSError):
            if WORKERS in Path(f"/proc/{each}/cmdline").read_text():
                return True
    return False


def in_the_middle(ask: Callable[[], None]) -> threading.Thread:
    """Ask once Spark's workers are there, while the job goes on."""

    def wait() -> None:
        while not has_workers():
            time.sleep(0.01)
        ask()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@contextlib.contextmanager
def asking_in(step: str, ask: Callable[[], None]) -> Iterator[None]:
    """Ask to stop when a step begins, and within the one that takes long."""
    original = getattr(steps, step)

    def asked(*given: Any) -> Any:
        if step != "compute":
            ask()
            return original(*given)
        thread = in_the_middle(ask)
        try:
            return original(*given)
        finally:
            thread.join()

    setattr(steps, step, asked)
    try:
        yield
    finally:
        setattr(steps, step, original)


def add_clicks(project: Path, number: int) -> None:
    """One for each server, a minute after those before."""
    click = {"user_id": 1, "page": "/", "amount": None, "ts": f"2026-01-01T11:{number:02d}:00Z"}
    for path in (project / "input").iterdir():
        with path.open("a") as file:
            file.write(json.dumps(click) + "\n")


def run(project: Path, step: str, ask: Callable[[], None]) -> None:
    """One run, and how it ended."""
    out = io.StringIO()
    code: Any = None
    with asking_in(step, ask), contextlib.redirect_stdout(out):
        try:
            cli(["--project", str(project), "run", "--epochs", "2", "--json"])
        except SystemExit as ended:
            code = ended.code
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    told = {
        "step": step,
        "how": ask.__name__,
        "exit_code": code,
        "document": json.loads(out.getvalue()),
        "java": process.pid if process and process.poll() is None else None,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main(project: Path) -> None:
    """Every step, and for the one that takes long every way."""
    # However slow the machine is, what `ask_the_group` sends is one wish.
    signals._SAME_WISH_SECONDS = float("inf")  # type: ignore[misc]
    runs = [(step, ask_the_group) for step in STEPS]
    ways = (press_ctrl_c, ask_everybody, ask_twice)
    for number, (step, ask) in enumerate([*runs, *(("compute", way) for way in ways)]):
        run(project, step, ask)
        add_clicks(project, number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

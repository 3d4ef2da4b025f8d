"""The worker: holds the code, and executes one run at a time on its main thread.

``python -m laminar_dagster.orchestration.warm.worker DESCRIPTOR``, started by a keeper, which
talks to it through the socket with that descriptor. The code is loaded by the first run, as in a
cold start, so that code which does not load shows as a failed run with a traceback.

The worker ends with its keeper, in whatever way that ends.
"""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

import dagster as dg

from laminar_dagster.orchestration.private_api import (
    capture_interrupts,
    execute_run,
    open_instance_for_runs,
)
from laminar_dagster.orchestration.warm.folder import hold
from laminar_dagster.orchestration.warm.identity import WORKER_TAG
from laminar_dagster.orchestration.warm.protocol import (
    Execute,
    Finished,
    Lines,
    Order,
    Ready,
    Setup,
    Stale,
    line,
    orders,
)
from laminar_dagster.orchestration.warm.stamp import CodeStamp
from laminar_dagster.spark.class_archive import COMPILER

_PREDECESSOR_SECONDS: Final = 30.0


class Worker:
    """Executes the runs that its keeper orders."""

    def __init__(self, control: socket.socket) -> None:
        """Talk to the keeper through ``control``."""
        self._control = control
        self._inbox: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._is_executing = False
        self._terminate_seconds = 0.0

    def serve(self) -> None:
        """Execute runs until the keeper closes the connection, or the code is stale."""
        threading.Thread(target=self._listen, name="keeper", daemon=True).start()
        setup = self._inbox.get()
        if not isinstance(setup, Setup):
            return
        self._terminate_seconds = setup.terminate_seconds
        # From here to the end an interrupt is noted, and raised only inside a run.
        # One Spark executes run after run: what its thorough compiler costs, it saves again.
        os.environ.setdefault(COMPILER, "full")
        with (
            capture_interrupts(),
            hold(Path(setup.lock), _PREDECESSOR_SECONDS),
            open_instance_for_runs(setup.instance) as instance,
        ):
            self._control.sendall(line(Ready()))
            self._execute_all(instance, setup)

    def _execute_all(self, instance: dg.DagsterInstance, setup: Setup) -> None:
        folder = os.getcwd()
        stamp: CodeStamp | None = None
        while isinstance(order := self._inbox.get(), Execute):
            # Nothing is loaded before the first run, so nothing can be stale.
            changed = None if stamp is None else stamp.change()
            if changed is not None:
                self._control.sendall(line(Stale(path=changed)))
                return
            if stamp is None:
                stamp = CodeStamp.take(Path(setup.code_folder), setup.ignored)
            os.chdir(folder)
            self._is_executing = True
            try:
                reusable = execute(instance, order.run_id)
            finally:
                self._is_executing = False
            self._control.sendall(line(Finished(reusable=reusable)))

    def _listen(self) -> None:
        lines = Lines(self._control)
        with contextlib.suppress(OSError):
            while (order := lines.next(orders)) is not None:
                self._inbox.put(order)
        self._inbox.put(None)
        # The keeper closed the connection, or was killed: end this process even if a run hangs.
        if self._is_executing:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(self._terminate_seconds)
        os.killpg(os.getpgid(0), signal.SIGKILL)


def execute(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Execute one run; return whether this process may execute another.

    Not after a failed run: its cause may lie in this process, such as a lost JVM or partly loaded
    code, and would fail every later run.
    """
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return True
    if run.status == dg.DagsterRunStatus.CANCELING:
        # Not executed: Dagster would take a run in this status for one whose worker restarted.
        instance.report_run_canceled(run, "The run was cancelled before it started.")
        return True
    instance.add_run_tags(run_id, {WORKER_TAG: str(os.getpid())})
    return execute_run(instance, run_id)


if __name__ == "__main__":
    Worker(socket.socket(fileno=int(sys.argv[1]))).serve()

"""Keepers from the launcher's side: find, start and ask them, and clean up after dead ones."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dagster as dg

from laminar_dagster.orchestration.private_api import CodeOrigin, instance_text
from laminar_dagster.orchestration.warm.connection import ConnectionLost, KeeperConnection
from laminar_dagster.orchestration.warm.folder import (
    KeeperFolder,
    Record,
    hold,
    is_held,
    wait_until_free,
)
from laminar_dagster.orchestration.warm.identity import keeper_key
from laminar_dagster.orchestration.warm.lost_runs import is_over, report_lost
from laminar_dagster.orchestration.warm.protocol import (
    Accepted,
    KeeperSetup,
    Refused,
    Reply,
    Request,
    Submit,
    Withdrawn,
    line,
)

_MODULE: Final = "laminar_dagster.orchestration.warm.keeper"
# Dagster's own folders in its home, which hold no code even if the home is the code's folder.
_DAGSTER_FOLDERS: Final = ("history", "schedules", "storage")
_REPLY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


_log = logging.getLogger(__name__)


class NotServed(Exception):
    """No keeper has accepted the run, and why. It may be launched in another way."""


class LaunchUnclear(Exception):
    """The keeper went away with the run, which may have begun. It must not be launched again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits, in seconds.

    Attributes:
        idle: How long a keeper stays without a run.
        start: How long a worker may take to start.
        terminate: How long a run may take to react to an interrupt.
    """

    idle: float
    start: float
    terminate: float


@dataclass(slots=True)
class Keepers:
    """The keepers of one Dagster instance.

    Attributes:
        instance: The instance, as text.
        root: The instance's folder.
        limits: Time limits.
    """

    instance: str
    root: Path
    limits: Limits
    _connections: dict[Path, KeeperConnection] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, instance: dg.DagsterInstance, limits: Limits) -> "Keepers":
        """The keepers of an instance."""
        return cls(instance_text(instance), Path(instance.root_directory).resolve(), limits)

    def submit(self, run_id: str, origin: CodeOrigin) -> Accepted | Withdrawn:
        """Hand a run to the keeper of its code, which is started if need be.

        Raises:
            NotServed: No keeper has the run.
            LaunchUnclear: A keeper had the run and is gone; the run was reported.
        """
        try:
            environment = dict(os.environ)
            key = keeper_key(origin, self.instance, Path.cwd(), environment)
            folder = KeeperFolder.of(self.root, key)
            return self._submit(run_id, folder, lambda: self._start(folder, origin, environment))
        except OSError as error:
            raise NotServed(f"no worker can be reached: {error}") from error

    def _submit(
        self, run_id: str, folder: KeeperFolder, start: Callable[[], None]
    ) -> Accepted | Withdrawn:
        # Twice: a keeper that was idle may end in the moment it is given a run.
        for _ in range(2):
            connection = self._find_or_start(folder, start)
            try:
                reply = connection.ask(Submit(run_id=run_id), self.limits.start + _REPLY_SECONDS)
            except ConnectionLost as lost:
                if self._took(folder, run_id):
                    raise LaunchUnclear(f"the keeper of the run's worker is gone: {lost}") from lost
                continue
            match reply:
                case Accepted() | Withdrawn():
                    return reply
                case Refused(reason=reason):
                    raise NotServed(reason)
                case _:
                    raise NotServed(f"the keeper answered {type(reply).__name__}")
        raise NotServed("the keeper of its worker ended twice")

    def _took(self, folder: KeeperFolder, run_id: str) -> bool:
        """Whether a keeper that went away had the run; reports its runs if so."""
        record = folder.record()
        self._bury_lost(folder)
        # Another launcher may have cleaned up, and reported the run, before this one looked.
        return (record is not None and run_id in record.runs) or is_over(self.instance, run_id)

    def holder(self, run_id: str) -> KeeperFolder | None:
        """The keeper that has the run, alive or dead, or None."""
        for folder in KeeperFolder.all(self.root):
            record = folder.record()
            if record is not None and run_id in record.runs:
                return folder
        return None

    def ask(self, request: Request) -> Reply | None:
        """Ask the keeper that has a run; None if no keeper has it.

        Raises:
            ConnectionLost: The keeper that had it is gone. Its runs are reported.
        """
        folder = self.holder(request.run_id)
        record = None if folder is None else folder.record()
        if folder is None or record is None:
            return None
        try:
            return _ask_once(record, request)
        except (OSError, ConnectionLost) as error:
            self._bury_lost(folder)
            raise ConnectionLost(f"the keeper of its worker is gone: {error}") from error

    def close(self) -> None:
        """Close every connection, so that the keepers may end."""
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    # --- finding and starting -------------------------------------------------------------------

    def _connection(self, folder: KeeperFolder, record: Record) -> KeeperConnection:
        with self._lock:
            known = self._connections.get(folder.path)
            if known is None or not known.is_open:
                known = KeeperConnection(Path(record.socket), lambda: self._bury_lost(folder))
                self._connections[folder.path] = known
            return known

    def _find_or_start(self, folder: KeeperFolder, start: Callable[[], None]) -> KeeperConnection:
        deadline = time.monotonic() + self.limits.start
        was_started = False
        with hold(folder.start_lock, self.limits.start):
            while time.monotonic() < deadline:
                record = folder.record()
                with contextlib.suppress(OSError):
                    if record is not None:
                        return self._connection(folder, record)
                # A keeper that holds its lock, but does not answer, is about to listen or to end.
                if not is_held(folder.keeper_lock):
                    if was_started:
                        break
                    self._bury_held(folder)
                    start()
                    was_started = True
                time.sleep(_POLL_SECONDS)
        raise NotServed(f"its keeper does not answer; see {folder.log}")

    def _start(self, folder: KeeperFolder, origin: CodeOrigin, environment: dict[str, str]) -> None:
        for other in KeeperFolder.all(self.root):
            if other != folder:
                self.bury(other)
        setup = KeeperSetup(
            instance=self.instance,
            folder=str(folder.path),
            socket=str(folder.choose_socket()),
            code_folder=str((origin.folder or Path.cwd()).resolve()),
            ignored=tuple(str(self.root / name) for name in ("", *_DAGSTER_FOLDERS)),
            idle_seconds=self.limits.idle,
            start_seconds=self.limits.start,
            terminate_seconds=self.limits.terminate,
        )
        folder.trim_log()
        descriptor = os.open(folder.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            process = subprocess.Popen(
                [origin.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=descriptor,
                stderr=descriptor,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        # Wait for its exit, so that a keeper that ends before this launcher is no zombie.
        threading.Thread(target=process.wait, name="laminar-keeper-exit", daemon=True).start()
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as pipe:
            # Not on the command line, which all users can read: the setup may hold a password.
            pipe.write(line(setup))
        self._wait_for_lock(process, folder)

    def _wait_for_lock(self, process: "subprocess.Popen[bytes]", folder: KeeperFolder) -> None:
        deadline = time.monotonic() + self.limits.start
        while not is_held(folder.keeper_lock):
            code = process.poll()
            if code is not None:
                raise NotServed(f"its keeper ended with code {code}; see {folder.log}")
            if time.monotonic() >= deadline:
                process.kill()
                raise NotServed(f"its keeper did not start within {self.limits.start:g} s")
            time.sleep(_POLL_SECONDS)

    # --- cleaning up after dead keepers ---------------------------------------------------------

    def bury(self, folder: KeeperFolder) -> None:
        """If the keeper is dead, end its worker and report its runs, unless others have done so."""
        if folder.record() is not None and not is_held(folder.keeper_lock):
            with contextlib.suppress(TimeoutError), hold(folder.start_lock, self.limits.start):
                if not is_held(folder.keeper_lock):
                    self._bury_held(folder)

    def _bury_lost(self, folder: KeeperFolder) -> None:
        # The kernel closes a dead process's files one by one: the socket may go before the lock.
        if wait_until_free(folder.keeper_lock, _REPLY_SECONDS):
            try:
                self.bury(folder)
            except Exception:
                # The record stays, so the next launch tries again to report the runs.
                _log.exception("could not report the runs of a dead keeper: %s", folder.path)

    def _bury_held(self, folder: KeeperFolder) -> None:
        record = folder.record()
        if record is None:
            return
        # A worker ends with its keeper. While it holds its lock, its pid cannot be another's.
        if not wait_until_free(folder.worker_lock, self.limits.terminate) and record.worker_pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(record.worker_pid, signal.SIGKILL)
            wait_until_free(folder.worker_lock, _REPLY_SECONDS)
        worker = f", and with it its worker (pid {record.worker_pid})" if record.worker_pid else ""
        what = f"The keeper of its worker (pid {record.keeper_pid}) was killed{worker}."
        report_lost(self.instance, record.runs, f"{what} Its log: {folder.log}")
        folder.forget()


def _ask_once(record: Record, request: Request) -> Reply:
    # On a connection of its own: a launch may block the shared one until there is a worker.
    connection = KeeperConnection(Path(record.socket), on_loss=lambda: None)
    try:
        return connection.ask(request, _REPLY_SECONDS)
    finally:
        connection.close()

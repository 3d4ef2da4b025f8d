"""The life of a service: install once, start on a free port, wait until it answers, stop.

A new service is one module with one subclass of `Service`, added to `infra.catalogue`.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Generic, Self, TypeVar

from infra.errors import ServiceError, ServiceFailed
from infra.load import Deadline
from infra.ports import free_port, is_listening
from infra.process import ProcessId, spawn, tail

_PORT_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a started service listens; subclasses add credentials.

    Attributes:
        host: Always a loopback address.
        port: TCP port.
    """

    host: str
    port: int

    def environment(self) -> dict[str, str]:
        """Return the variables that point a client at this endpoint."""
        return {}


E = TypeVar("E", bound=Endpoint)


@dataclass(frozen=True, slots=True)
class Launch(Generic[E]):
    """How to run a service on one port.

    Attributes:
        command: Program and arguments; no secrets, as every user of the machine can read them.
        environment: Variables added to this process's own; secrets go here.
        endpoint: Where the service will listen.
        user: Account to run as, for servers that refuse root.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    endpoint: E
    user: str | None = None


class Service(ABC, Generic[E]):
    """One server process that this process owns.

    Use it as a context manager or call `stop`. If neither happens, it stops when the interpreter
    exits, and on Linux also when the interpreter is killed.
    """

    name: ClassVar[str]
    ready_within: ClassVar[float] = 30.0

    def __init__(self) -> None:
        """Create a service that is not running."""
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None
        self._endpoint: E | None = None

    @abstractmethod
    def install(self) -> None:
        """Put the server into the cache directory, or find it there.

        Idempotent, and safe to call from several processes at once.

        Raises:
            ServiceUnavailable: A tool is missing; the message says what to install.
        """

    @abstractmethod
    def launch(self, data_dir: Path, port: int) -> Launch[E]:
        """Prepare ``data_dir`` and say how to run the server on ``port``."""

    @abstractmethod
    def is_ready(self, endpoint: E) -> bool:
        """Tell whether *this* server answers at ``endpoint``, and not one that took its port."""

    @property
    def endpoint(self) -> E:
        """Where the running service listens."""
        if self._endpoint is None:
            raise ServiceFailed(self.name, "it is not running")
        return self._endpoint

    @property
    def identity(self) -> ProcessId:
        """The running server's process."""
        if self._identity is None:
            raise ServiceFailed(self.name, "it is not running")
        return self._identity

    def start(self, data_dir: Path, *, outlive: bool = False) -> E:
        """Install if needed, start, and wait until the server answers.

        Args:
            data_dir: Directory for the server's data and its log, ``<name>.log``.
            outlive: Keep the server running when this process ends.

        Returns:
            Where it listens.

        Raises:
            ServiceUnavailable: The service cannot be installed here.
            ServiceFailed: It ended or did not answer in time; the message ends with its log.
        """
        if self._process is not None:
            raise ServiceFailed(self.name, "it is already running")
        self.install()
        data_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(_PORT_ATTEMPTS):
            launch = self.launch(data_dir, free_port())
            if self._run(launch, data_dir, outlive):
                return launch.endpoint
        raise ServiceFailed(self.name, f"lost its port to others {_PORT_ATTEMPTS} times in a row")

    def stop(self) -> None:
        """End the server and wait until it is gone; does nothing if it does not run."""
        process, identity = self._process, self._identity
        self._process = self._identity = self._endpoint = None
        atexit.unregister(self.stop)
        if identity is not None:
            identity.end()
        if process is not None:
            process.wait()

    def __enter__(self) -> Self:
        """Return the service, to be stopped at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()

    def _run(self, launch: Launch[E], data_dir: Path, outlive: bool) -> bool:
        """Return True when the server answers, False when another process took its port."""
        log = data_dir / f"{self.name}.log"
        self._process = spawn(
            launch.command,
            log=log,
            cwd=data_dir,
            environment={**os.environ, **launch.environment},
            user=launch.user,
            outlive=outlive,
        )
        self._identity = ProcessId.of(self._process.pid)
        if not outlive:
            atexit.register(self.stop)
        try:
            self._wait(self._process, launch.endpoint, log)
        except ServiceError:
            ended = self._process.poll() is not None
            self.stop()
            if ended and is_listening(launch.endpoint.port):
                return False
            raise
        except BaseException:
            self.stop()
            raise
        self._endpoint = launch.endpoint
        return True

    def _wait(self, process: subprocess.Popen[bytes], endpoint: E, log: Path) -> None:
        deadline = Deadline(self.ready_within)
        while not self.is_ready(endpoint):
            if (code := process.poll()) is not None:
                raise ServiceFailed(self.name, f"ended with code {code}; its log:\n{tail(log)}")
            if deadline.is_over:
                raise ServiceFailed(
                    self.name, f"no answer within {deadline}; its log:\n{tail(log)}"
                )
            time.sleep(0.05)

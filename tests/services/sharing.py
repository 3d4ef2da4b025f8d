"""One set of services for all processes of a run: fixture `services`.

With xdist, the process that hands out the tests owns the services. The first of its workers that
needs one has it started, the others are told where it listens, and a worker that ends or dies takes
none along. Without xdist, the process that runs the tests owns them. They stop with the run; when
the owner is killed, the kernel ends them (`infra/leash.py`).

A service's plug-in says how to start it, as a function that pickles::

    @pytest.fixture(scope="session")
    def s3_service(services: Services) -> S3Endpoint:
        return services.endpoint("s3", S3)

Tests of several processes use it at the same time. What concerns a whole server (its settings, its
log, its end) is tried on another one.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pytest

from infra.errors import ServiceError, ServiceFailed
from infra.service import Endpoint, Service
from tests.services.durations import START_UPS

T = TypeVar("T")
E = TypeVar("E", bound=Endpoint)

# Told its folder, starts a service, and stops it at the end of the block. Pickles, as does what it
# returns.
Start = Callable[[Path], AbstractContextManager[T]]

_ADDRESS: Final = "where services are asked for"
_KEY: Final = "what is shown there"


class Services(ABC):
    """The services of a run, each started when it is first asked for."""

    @abstractmethod
    def require(self, name: str, start: Start[T]) -> T:
        """What ``start`` has returned: now, or when another process asked for this name.

        Raises:
            ServiceError: It does not start. Whoever asks again is told the same.
        """

    def endpoint(self, name: str, kind: Callable[[], Service[E]]) -> E:
        """Where a service listens that needs nothing beside it."""
        return self.require(name, partial(_serving, kind))


@contextmanager
def _serving(kind: Callable[[], Service[E]], folder: Path) -> Iterator[E]:
    with kind() as service:
        yield service.start(folder)


@dataclass
class _Entry:
    """One service; whoever asks for it while it starts waits."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None
    error: Exception | None = None
    is_tried: bool = False


class OwnedServices(Services):
    """Services of this process."""

    def __init__(self, root: Path, seconds: dict[str, float]) -> None:
        """Nothing is started yet.

        Args:
            root: Gets a folder for each service.
            seconds: Is told what each took to start.
        """
        self._root = root
        self._seconds = seconds
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._running = ExitStack()

    def require(self, name: str, start: Start[T]) -> T:
        """See ``Services``."""
        with self._lock:
            entry = self._entries.setdefault(name, _Entry())
        with entry.lock:
            if not entry.is_tried:
                try:
                    entry.value = self._start(name, start)
                except Exception as error:
                    entry.error = error
                entry.is_tried = True
        if entry.error is not None:
            raise entry.error
        value: T = entry.value
        return value

    def stop(self) -> None:
        """Stop all of them, the last one first."""
        self._running.close()

    def _start(self, name: str, start: Start[T]) -> T:
        folder = self._root / name
        folder.mkdir(parents=True, mode=0o700)
        began = time.monotonic()
        running = start(folder)
        value = running.__enter__()
        self._seconds[name] = time.monotonic() - began
        # Several may start at the same time, each in the order in which it is ready.
        with self._lock:
            self._running.push(running)
        return value


class AskedServices(Services):
    """Services of the process that this one is a worker of."""

    def __init__(self, address: str, key: bytes, root: Path) -> None:
        """Ask nothing yet."""
        self._address = address
        self._key = key
        self._root = root

    def require(self, name: str, start: Start[T]) -> T:
        """See ``Services``."""
        with Client(self._address, authkey=self._key) as connection:
            connection.send((self._root, name, start))
            value, error = connection.recv()
        if error is not None:
            raise error
        found: T = value
        return found


class ServiceDesk:
    """Where workers ask their owner for services: a socket in a folder of this account alone.

    Attributes:
        address: The socket's file.
        key: Who asks has to show it: what is asked is run.
    """

    def __init__(self, seconds: dict[str, float]) -> None:
        """Listen from now on.

        Args:
            seconds: Is told what each service took to start.
        """
        self._seconds = seconds
        self.key = secrets.token_bytes(32)
        self._services: OwnedServices | None = None
        self._lock = threading.Lock()
        self._listener = Listener(family="AF_UNIX", authkey=self.key)
        self._is_closed = threading.Event()
        self.address = str(self._listener.address)
        self._thread = threading.Thread(target=self._accept, name="service desk", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear nobody any more, and stop the services."""
        self._is_closed.set()
        # Nothing else wakes who waits for a connection.
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(self.address)
        self._thread.join()
        self._listener.close()
        if self._services is not None:
            self._services.stop()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            # A worker that dies while it says who it is, or somebody else.
            with suppress(OSError, EOFError, AuthenticationError):
                connection = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        # Whoever has asked may be gone by the time there is an answer.
        with connection, suppress(OSError, EOFError):
            root, name, start = connection.recv()
            connection.send(self._outcome(root, name, start))

    def _outcome(self, root: Path, name: str, start: Start[T]) -> tuple[T | None, Exception | None]:
        try:
            return self._of(root).require(name, start), None
        except ServiceError as error:
            return None, error
        except Exception as error:
            return None, ServiceFailed(name, f"it cannot be started: {error!r}")

    def _of(self, root: Path) -> OwnedServices:
        with self._lock:
            if self._services is None:
                self._services = OwnedServices(root, self._seconds)
            return self._services


_desk: Final = pytest.StashKey[ServiceDesk]()


class _Worker(Protocol):
    """What xdist tells of a worker that it is about to start."""

    config: pytest.Config
    workerinput: dict[str, Any]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Worker) -> None:
    """Tell a worker where to ask."""
    stash = node.config.stash
    if _desk not in stash:
        stash[_desk] = ServiceDesk(stash.setdefault(START_UPS, {}))
    node.workerinput |= {_ADDRESS: stash[_desk].address, _KEY: stash[_desk].key}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop what workers have asked for: they have ended, and pytest may remove its folders next."""
    _close(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The same for a run that has not come so far."""
    _close(config)


def _close(config: pytest.Config) -> None:
    if _desk in config.stash:
        desk = config.stash[_desk]
        del config.stash[_desk]
        desk.close()


@pytest.fixture(scope="session")
def services(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Services]:
    """Those of the whole run."""
    told = getattr(request.config, "workerinput", None)
    folder = tmp_path_factory.getbasetemp()
    if told is not None:
        yield AskedServices(told[_ADDRESS], told[_KEY], folder.parent / "services")
        return
    owned = OwnedServices(folder / "services", request.config.stash.setdefault(START_UPS, {}))
    yield owned
    owned.stop()

"""A launcher's connection to a keeper. While it is open, the keeper stays."""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from laminar_dagster.orchestration.warm.protocol import Lines, Reply, Request, line, replies


class ConnectionLost(Exception):
    """The keeper is gone. Its record on disk shows whether it accepted the last request."""


class KeeperConnection:
    """One connection, for all threads of a process. A thread of its own notices when it is lost."""

    def __init__(self, path: Path, on_loss: Callable[[], None]) -> None:
        """Connect.

        Args:
            path: The keeper's socket.
            on_loss: Called on a thread of its own when the keeper goes away first.

        Raises:
            OSError: No keeper listens there.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._on_loss = on_loss
        self._turn = threading.Lock()
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._is_closed = False
        self._is_lost = False
        self._watcher = threading.Thread(target=self._watch, name="laminar-keeper", daemon=True)
        self._watcher.start()

    @property
    def is_open(self) -> bool:
        """Whether requests can be made."""
        return not (self._is_closed or self._is_lost)

    def ask(self, request: Request, seconds: float) -> Reply:
        """Make a request and wait for its reply.

        Raises:
            ConnectionLost: There is no reply, and will be none.
        """
        with self._turn:
            if not self.is_open:
                raise ConnectionLost("the connection is closed")
            try:
                self._socket.sendall(line(request))
                reply = self._replies.get(timeout=seconds)
            except OSError as error:
                self.close()
                raise ConnectionLost(str(error)) from error
            except queue.Empty:
                # Closed, because a late reply would be taken for that of the next request.
                self.close()
                raise ConnectionLost(f"no reply within {seconds:g} s") from None
            if reply is None:
                raise ConnectionLost("the keeper ended")
            return reply

    def close(self) -> None:
        """Close the connection, so that the keeper may end."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._watcher:
            self._watcher.join()

    def _watch(self) -> None:
        lines = Lines(self._socket)
        with contextlib.suppress(OSError, msgspec.DecodeError):
            while (reply := lines.next(replies)) is not None:
                self._replies.put(reply)
        self._is_lost = True
        self._replies.put(None)
        lines.close()
        self._socket.close()
        if not self._is_closed:
            self._on_loss()

"""An end to what a server keeps us waiting for, in whatever small pieces it answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def hung_up_after(descriptor: int, seconds: float) -> Iterator[threading.Event]:
    """Break a connection off if what is done inside takes too long.

    A time-out of a socket begins anew with every byte, so a server that sends one now and then
    would be waited for without end.

    Args:
        descriptor: Of the connection's socket.
        seconds: How long all of it may take.

    Yields:
        What is set when it did: an answer that was cut off may look like one that has ended.
    """
    over = threading.Event()
    # A descriptor of its own: the connection's may be closed, and its number another file's.
    with socket.socket(fileno=os.dup(descriptor)) as line:
        watch = threading.Timer(seconds, _hang_up, (line, over))
        watch.daemon = True
        watch.start()
        try:
            yield over
        finally:
            watch.cancel()
            watch.join()


def _hang_up(line: socket.socket, over: threading.Event) -> None:
    over.set()
    # The other side may have been faster.
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)

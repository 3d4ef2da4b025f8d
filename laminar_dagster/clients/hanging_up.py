"""A deadline for a whole exchange with a server, however slowly it answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def hung_up_after(descriptor: int, seconds: float) -> Iterator[threading.Event]:
    """Shut the connection down if the block takes too long.

    A socket's timeout starts anew with every byte, so a server that sends one now and then would
    be waited for without end.

    Args:
        descriptor: The descriptor of the connection's socket.
        seconds: How long the whole block may take.

    Yields:
        An event, set at the deadline: check it, since a cut-off answer may look complete.
    """
    over = threading.Event()
    # Duplicated: the connection may close its descriptor, whose number another file may then get.
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
    # The other side may have closed the connection already.
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)

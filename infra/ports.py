"""Loopback ports: choosing a free one, and asking whether one is taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a loopback port that was free a moment ago.

    Another process may bind it before the caller does; whoever starts a server on it has to
    expect that and choose again.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def reserved_port() -> Iterator[int]:
    """A loopback port that nobody else is given meanwhile.

    Another process of this account listens on it with ``SO_REUSEPORT``.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((LOOPBACK, 0))
        port: int = holder.getsockname()[1]
        yield port


def is_listening(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether something accepts connections on ``port``."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False

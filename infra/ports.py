"""Loopback ports: choosing a free one, and asking whether one is taken."""

from __future__ import annotations

import socket

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


def is_listening(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether something accepts connections on ``port``."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
